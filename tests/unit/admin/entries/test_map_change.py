"""The edits that single requests make of a map; what comes of them is in test_entry_changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries import map_change, numbered
from kuvasz.admin.entries.map_change import WrittenMap
from kuvasz.config import file
from kuvasz.config.written.map_edit import Drop, Put, Rename
from kuvasz.state.memory import MemoryNumbers
from tests.support.maps import loaded

MAP = """
map: {writable: true}
databases:
- {database: other, urls: [], tables: {}}
- database: shop
  urls: [{url: "postgresql://eu/x", sid: eu}, {url: "postgresql://us/x", sid: us}]
  tables: {items: , Big.One: {target: a.b, type: append, partitions_regex: "x.*"}}
"""


@pytest.fixture
def written(tmp_path: Path) -> WrittenMap:
    known = numbered.number(loaded(tmp_path, MAP).config, MemoryNumbers())
    return WrittenMap(known=known, plain=file.parse(MAP, name="map").value)


def test_places_are_counted_group_by_group(written: WrittenMap) -> None:
    shop, (_, us), (items, big) = written.known.databases[1], written.known.urls, written.known.tables
    assert written.path(shop) == ("databases", 1)
    assert map_change.drop_url(written, us).edits == [Drop(path=("databases", 1, "urls", 1))]
    assert map_change.drop_table(written, big).edits == [Drop(path=("databases", 1, "tables", "Big.One"))]
    assert map_change.drop_group(written, written.known.databases[0]).edits == [Drop(path=("databases", 0))]
    assert map_change.drop_table(written, items).edits == [Drop(path=("databases", 1, "tables", "items"))]


def test_only_what_differs_is_edited(written: WrittenMap) -> None:
    big, path = written.known.tables[1], ("databases", 1, "tables", "Big.One")
    shown: dict[str, Any] = {"db_id": 2, "schema": "Big", "name": "One", "type": "append", "target": "a.b",
                             "partitions_regex": "x.*"}  # fmt: skip
    assert map_change.change_table(written, big, shown).edits == []
    change = map_change.change_table(
        written, big, {**shown, "partitions_regex": "", "target": "One", "name": "Two.x"}
    )
    assert change.edits == [
        Put(path=(*path, "target"), value="One"),
        Drop(path=(*path, "partitions_regex")),
        Rename(path=path, key='Big."Two.x"'),
    ]
    (renamed,) = change.renamed
    assert (renamed.before, renamed.after) == (("shop", "Big", "One"), ("shop", "Big", "Two.x"))


def test_an_entry_does_not_go_to_another_group(written: WrittenMap) -> None:
    with pytest.raises(RequestRefused, match="belongs to db 2, and cannot go to db 1") as refused:
        map_change.change_url(written, written.known.urls[0], {"db_id": 1, "sid": "eu", "url": "postgresql://eu/x"})
    assert refused.value.status == 409


ROLE = "postgresql://slots:geheim@"


def test_a_source_may_come_with_a_role_that_replicates() -> None:
    said = {"url": "postgresql://me:mine@eu/x", "replication_url": ROLE}
    assert map_change.new_url(said) == said
    assert "replication_url" not in map_change.new_url({**said, "replication_url": None})
    for url, told in (("postgresql://slots:***@", "none for that place"), ("postgresql://${X}@", "must not refer")):
        with pytest.raises(RequestRefused, match=told):
            map_change.new_url({**said, "replication_url": url})


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ("postgresql://me:mine@evil/x", True), ("postgresql://me:mine@eu/x?host=evil", True),
        ("postgresql://me:mine@eu/y", False),
    ],
)  # fmt: skip
def test_the_password_of_who_replicates_is_not_sent_elsewhere(tmp_path: Path, given: str, is_refused: bool) -> None:
    text = MAP.replace('{url: "postgresql://eu/x",', f'{{url: "postgresql://eu/x", replication_url: "{ROLE}",')
    known = numbered.number(loaded(tmp_path, text).config, MemoryNumbers())
    written = WrittenMap(known=known, plain=file.parse(text, name="map").value)
    shop, eu = known.databases[1], known.urls[0]
    request = {"db_id": shop.number, "sid": "eu", "url": given}
    if is_refused:
        with pytest.raises(RequestRefused, match="shop_eu has a replication_url, whose password would be sent"):
            map_change.change_url(written, eu, request)
    else:
        (edit,) = map_change.change_url(written, eu, request).edits
        assert edit == Put(path=("databases", 1, "urls", 0, "url"), value=given)
