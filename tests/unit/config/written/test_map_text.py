"""The text of a map after single edits: what nobody changed is there as it was, letter by letter."""

from __future__ import annotations

import difflib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import file
from kuvasz.config.written import map_edit, map_text
from kuvasz.config.written.map_edit import Append, Drop, MapEdit, Put, Rename
from kuvasz.errors import ConfigError
from tests.support.examples import examples

MAP = """\
# the lake of the shops
lake:   {namespace: "shop"}   # for all
databases:
- database: shop
  urls:
  - {url: "postgresql://repl:${EU_PW}@eu1/shop", sid: eu}  # Frankfurt
  # - {url: "postgresql://repl@old/shop", sid: old}
  - url: postgresql://us1/shop
    sid: us
  tables:
    items:                     # a clone

    # what was sold
    'orders.new':   {type: append,  target: fact_orders}
    notes:
      type: history
      filter: |
        kind <> 'x'
        # this is a part of it
      # and this is none

# Blogs have another shape.
- database: blog
  urls: []  # none yet
  tables: {}
"""


def change(text: str, *edits: MapEdit) -> tuple[list[str], list[str]]:
    """Return the lines that go, and those that come."""
    lines = list(difflib.ndiff(text.splitlines(), map_text.edited(text, edits).splitlines()))
    return [one[2:] for one in lines if one[0] == "-"], [one[2:] for one in lines if one[0] == "+"]


def test_entries_come_behind_the_last_one_and_before_the_comments_behind_it() -> None:
    assert change(MAP, Put(path=("databases", 0, "tables", "later"), value=None)) == ([], ["    later:"])
    text = map_text.edited(MAP, [Put(path=("databases", 0, "tables", "new one"), value={"type": "append"})])
    assert 'is a part of it\n    "new one": {type: append}\n      # and this is none\n\n# Blogs' in text
    added = {"url": "postgresql://a:b@c/d?e=f", "sid": "on"}
    assert change(MAP, Append(path=("databases", 0, "urls"), value=added)) == (
        [], ['  - {url: "postgresql://a:b@c/d?e=f", sid: "on"}'],
    )  # fmt: skip
    group: map_edit.Plain = {"database": "wiki", "urls": [], "tables": {}}
    text = map_text.edited(MAP, [Append(path=("databases",), value=group)])
    assert text == f"{MAP}- database: wiki\n  urls: []\n  tables: {{}}\n"


def test_empty_brackets_make_room_for_lines() -> None:
    found = map_text.edited(
        MAP,
        [
            Append(path=("databases", 1, "urls"), value={"url": "postgresql:///blog"}),
            Put(path=("databases", 1, "tables", "posts"), value=None),
            Put(path=("databases", 1, "tables", "s.t"), value={"target": "t"}),
        ],
    )
    assert found.endswith("""\
- database: blog
  urls:  # none yet
  - {url: "postgresql:///blog"}
  tables:
    posts:
    s.t: {target: t}
""")


def test_what_goes_leaves_the_words_around_it() -> None:
    assert change(MAP, Drop(path=("databases", 0, "urls", 0)))[0] == [MAP.splitlines()[5]]
    assert change(MAP, Drop(path=("databases", 0, "urls", 1))) == (MAP.splitlines()[7:9], [])
    assert change(MAP, Drop(path=("databases", 0, "tables", "items"))) == (
        ["    items:                     # a clone"], [],
    )  # fmt: skip
    assert "# Blogs have" in map_text.edited(MAP, [Drop(path=("databases", 1))])
    text = map_text.edited(MAP, [Drop(path=("databases", 0))])
    assert "  urls: []" in text
    assert "# and this is none\n\n# Blogs have another shape.\n- database: blog" in text
    gone = [Drop(path=("databases", 0, "urls", 0))] * 2
    assert file.parse(map_text.edited(MAP, gone), name="map").value["databases"][0]["urls"] == []  # type: ignore[index]
    assert file.parse(map_text.edited(MAP, [Drop(path=("databases", 0))] * 2), name="map").value["databases"] == []


def test_single_values_and_names_are_exchanged_at_their_place() -> None:
    assert change(MAP, Rename(path=("databases", 0, "tables", "orders.new"), key="goods")) == (
        ["    'orders.new':   {type: append,  target: fact_orders}"],
        ["    goods:   {type: append,  target: fact_orders}"],
    )
    assert change(MAP, Put(path=("databases", 0, "tables", "orders.new", "type"), value="clone"))[1] == [
        "    'orders.new':   {type: clone,  target: fact_orders}"
    ]
    assert change(MAP, Drop(path=("databases", 0, "tables", "orders.new", "type")))[1] == [
        "    'orders.new':   {target: fact_orders}"
    ]
    assert change(MAP, Put(path=("databases", 0, "tables", "items"), value={"type": "append"}))[1] == [
        "    items: {type: append}                     # a clone"
    ]
    assert change(MAP, Put(path=("databases", 0, "tables", "notes", "filter"), value="a"))[1] == ["      filter: a"]
    assert change(MAP, Put(path=("databases", 0, "urls", 1, "schemas"), value="t_(.+)"))[1] == [
        '    schemas: "t_(.+)"'
    ]
    assert change(MAP, Put(path=("databases", 1, "database"), value="blogs")) == (
        ["- database: blog"], ["- database: blogs"],
    )  # fmt: skip
    assert change(MAP, Drop(path=("databases", 0, "urls", 1, "url"))) == (
        ["  - url: postgresql://us1/shop", "    sid: us"], ["  - sid: us"],
    )  # fmt: skip


def test_json_stays_json() -> None:
    text = json.dumps({"databases": [{"database": "a", "urls": [], "tables": {}}]}, indent=2)
    made = map_text.edited(
        text,
        [
            Append(path=("databases", 0, "urls"), value={"url": "postgresql:///a"}),
            Put(path=("databases", 0, "tables", "t"), value=None),
            Put(path=("databases", 0, "tables", "u"), value={"type": "append"}),
            Drop(path=("databases", 0, "tables", "t")),
        ],
    )
    assert json.loads(made) == {
        "databases": [{"database": "a", "urls": [{"url": "postgresql:///a"}], "tables": {"u": {"type": "append"}}}]
    }


def test_a_file_that_is_only_a_list_of_groups_stays_one() -> None:
    text = "- database: a\n  urls: [{url: 'postgresql:///a'}]\n  tables: {t: }\n"
    made = map_text.edited(text, [Append(path=("databases",), value={"database": "b", "urls": [], "tables": {}})])
    assert made == f"{text}- database: b\n  urls: []\n  tables: {{}}\n"
    made = map_text.edited(made, [Drop(path=("databases", 0)), Put(path=("databases", 0, "database"), value="c")])
    assert made == "- database: c\n  urls: []\n  tables: {}\n"


def test_lines_end_as_the_others_do() -> None:
    text = MAP.replace("\n", "\r\n").rstrip()
    made = map_text.edited(
        text,
        [
            Put(path=("databases", 0, "tables", "later"), value=None),
            Put(path=("databases", 1, "tables", "posts"), value=None),
            Append(path=("databases", 1, "urls"), value={"url": "postgresql:///blog"}),
        ],
    )
    assert made.count("\n") == made.count("\r\n") == text.count("\n") + 3


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("databases:\n- {database: a, urls: [], tables: &t {x: }}\n- {database: b, urls: [], tables: *t}\n",
         Put(path=("databases", 1, "tables", "y"), value=None)),
        ("x: &t {x: , z: }\ndatabases:\n- {database: a, urls: [], tables: {<<: *t}}\n",
         Drop(path=("databases", 0, "tables", "x"))),
        ("databases:\n- # the first\n  database: a\n  urls: []\n  tables: {}\n", Drop(path=("databases", 0))),
    ],
)  # fmt: skip
def test_what_a_program_cannot_change_alone_is_left_to_a_person(text: str, edit: MapEdit) -> None:
    with pytest.raises(ConfigError, match="is written in a way that a program cannot change"):
        map_text.edited(text, [edit])


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"has nothing at databases.7 to change"):
        map_text.edited(MAP, [Drop(path=("databases", 7))])


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=examples(25))
@given(st.data())
def test_any_edits_mean_what_they_say_and_no_comment_is_lost(data: st.DataObject) -> None:
    text = MAP
    for _ in range(data.draw(st.integers(1, 6))):
        group = 0
        tables = file.parse(text, name="map").value["databases"][group]["tables"]  # type: ignore[index]
        key = data.draw(st.sampled_from([*tables, "absent"]))
        path = ("databases", group, "tables", key)
        choices: list[MapEdit] = [
            Put(path=("databases", group, "tables", data.draw(TEXTS)), value={"target": data.draw(TEXTS)}),
            Append(path=("databases", group, "urls"), value={"url": data.draw(TEXTS), "sid": data.draw(TEXTS)}),
        ]
        if key in tables:
            choices += [Drop(path=path), Rename(path=path, key=f"r{len(tables)}{data.draw(TEXTS)}")]
        edit = data.draw(st.sampled_from(choices))
        wanted = map_edit.edited(file.parse(text, name="map").value, edit)
        text = map_text.edited(text, [edit])
        assert file.parse(text, name="map").value == wanted
    kept = ("# the lake of the shops", "# for all", "# Frankfurt", "sid: old}", "# what was sold", "# none yet")
    assert all(one in text for one in (*kept, "# Blogs have another shape.", "# and this is none"))
