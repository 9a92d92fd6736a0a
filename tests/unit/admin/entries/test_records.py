from __future__ import annotations

from pathlib import Path

from kuvasz.admin.entries import numbered, records
from kuvasz.admin.entries.numbered import NumberedMap
from kuvasz.config.secrets import Redactor
from kuvasz.state.memory import MemoryNumbers
from tests.support.maps import loaded

MAP = """
lake: {namespace: shop}
databases:
- database: shop
  urls: [{url: "postgresql://repl:geheim@eu1/shop"}]
  tables:
    Items: {target: goods, filter: "n > 1", set: {id: id, twice: "2 * n"}, key: [id]}
    '"a.b".c': {type: append, target: archive.c}
    log: {partitions_regex: "log_.*"}
"""


def known(folder: Path) -> NumberedMap:
    return numbered.number(loaded(folder, MAP).config, MemoryNumbers())


def test_a_table_has_schema_and_name_apart(tmp_path: Path) -> None:
    found = known(tmp_path)
    shown = [records.table(one, found.config.lake) for one in found.tables]
    assert [(one["schema"], one["name"], one["target"], one["type"], one["partitions_regex"]) for one in shown] == [
        ("public", "Items", "goods", "clone", None),
        ("a.b", "c", "archive.c", "append", None),
        ("public", "log", "log", "clone", "log_.*"),
    ]


def test_a_source_without_a_sid_that_does_not_run_is_shown_all_the_same(tmp_path: Path) -> None:
    (one,) = known(tmp_path).urls
    assert records.url(one, None, Redactor()) == {
        "id": 1, "db_id": 1, "db_name": "shop", "sid": "", "url": "postgresql://repl:***@eu1/shop", "up": False,
        "status": "", "error": "",
    }  # fmt: skip


def test_what_the_map_makes_of_a_table_is_shown_without_a_source(tmp_path: Path) -> None:
    found = known(tmp_path)
    items, *others = records.mapped_tables(found, {})
    assert len(others) == 2
    shown = records.mapping(items, 7, found.config.lake, {"shop.goods"})
    assert shown["id"] == 7
    assert (shown["filter"], shown["set"]) == ("n > 1", {"id": "id", "twice": "2 * n"})
    assert (shown["replicated"], shown["present"], shown["partitions"], shown["source_columns"]) == (
        True, True, None, {},
    )  # fmt: skip
    assert not records.mapping(others[0], 8, found.config.lake, {"shop.c"})["present"], "it is archive.c"
