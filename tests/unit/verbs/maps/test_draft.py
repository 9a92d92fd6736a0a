"""The text of a map that is made for someone, as the loader reads it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.config import load, names
from kuvasz.config.model import Config
from kuvasz.model import TableName
from kuvasz.verbs.maps.draft import Draft, DraftEntry

HEADING = ("made of shop",)


def entry(table: str, comments: tuple[str, ...] = ("key: id",), left_out: str = "", **options: str) -> DraftEntry:
    return DraftEntry(table=table, options=options, comments=comments, left_out=left_out)


def draft(*entries: DraftEntry, **facts: str) -> Draft:
    given = {"namespace": "shop", "database": "shop", "url": "postgresql://kuvasz:${EU_PW}@eu1/shop", "sid": "eu"}
    return Draft(heading=HEADING, entries=entries, **(given | facts))


def read(text: str) -> Config:
    return load.of_text(text, {"EU_PW": "geheim"}, Path())


def test_a_map_has_a_comment_for_each_table() -> None:
    text = draft(
        entry("orders", ("key: id", "placed: timestamptz")), entry("log", ("key: none",), type="append"),
        entry("totals", (), "it is a view"), entry("sessions", ("key: id",), "unlogged", target="s"),
    ).text()  # fmt: skip
    assert text.startswith("# made of shop\n\n# Where the tables go: ")
    assert text.endswith(
        "databases:\n"
        "- database: shop\n"
        "  urls:\n"
        '  - {url: "postgresql://kuvasz:${EU_PW}@eu1/shop", sid: eu}\n'
        "  tables:\n"
        "    # key: id\n"
        "    # placed: timestamptz\n"
        "    orders:\n"
        "    # key: none\n"
        "    log: {type: append}\n"
        "    # totals:  # left out: it is a view\n"
        "    # # key: id\n"
        "    # sessions: {target: s}  # left out: unlogged\n"
    )
    config = read(text)
    assert list(config.databases[0].tables) == ["orders", "log"]
    assert config.databases[0].urls[0].url.get() == "postgresql://kuvasz:geheim@eu1/shop"


def test_what_is_left_out_can_be_taken_in() -> None:
    text = draft(entry("orders"), entry('"a.b"', ("key: id",), "for now", target="a b")).text()
    config = read(text.replace("    # # key: id\n    # ", "    # key: id\n    "))
    assert config.databases[0].tables['"a.b"'].target == "a b"


def test_options_are_those_of_a_map_that_says_nothing() -> None:
    written, bare = read(draft(entry("orders")).text()), load.of_text("databases:\n- {database: shop, urls: [{url: "
        "'postgresql://h/shop'}], tables: {orders: }}", {}, Path())  # fmt: skip
    for section in ("spark", "pipeline", "maintenance", "server"):
        assert getattr(written, section) == getattr(bare, section)
    assert written.lake == bare.lake.model_copy(update={"namespace": "shop"})


@pytest.mark.parametrize(
    "name", ["null", "~", "12", "1.5", "true", "a: b # c", "- x", "{x}", "'q'", '5"disk', " x ", "?"]
)
def test_names_that_mean_something_to_yaml_stay_names(name: str) -> None:
    config = read(draft(entry(name, target="t"), database=name, sid=name).text())
    (group,) = config.databases
    assert (list(group.tables), group.database, group.urls[0].sid) == ([name], name, name)


def test_nothing_in_a_value_is_a_reference() -> None:
    (group,) = read(draft(entry("t", target="a${X}b"), database="${Y}").text()).databases
    assert (group.tables["t"].target, group.database) == ("a${X}b", "${Y}")


#: Whatever PostgreSQL takes for a name.
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=63)


@given(NAMES, NAMES)
def test_any_name_is_read_back_and_none_moves_the_cursor(schema: str, name: str) -> None:
    key = names.render_table(TableName(schema=schema, name=name))
    text = draft(entry(key, (f"key: {name}",), target="t"), entry("x"), entry(key + "x", (), name)).text()
    assert list(read(text).databases[0].tables) == [key, "x"]
    assert all(line.isprintable() for line in text.split("\n"))
