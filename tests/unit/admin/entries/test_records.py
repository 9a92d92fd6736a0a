from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.entries import numbered, records
from kuvasz.admin.entries.numbered import NumberedMap
from kuvasz.config.secrets import Redactor
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog.table import SourceTable, TableKind
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


def source_table(schema: str, name: str, column: str = "id") -> SourceTable:
    columns = (Column(name=column, pg_type=PgType(oid=23, name="int4"), is_key=True, attnum=1),)
    relation = Relation(
        oid=1, table=TableName(schema=schema, name=name), identity=ReplicaIdentity.DEFAULT, columns=columns
    )
    return SourceTable(
        relation=relation, kind=TableKind.TABLE, page_bytes=8192, row_estimate=None, primary_key=(column,),
        identity_index=(), generated=(), leaves=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("schemas", "partitions", "column"),
    [
        ("tenant_(.+)", ["tenant_a.items", "tenant_b.items"], "a_id"),
        ("(.+)", ["tenant_a.items", "tenant_b.items"], "own_id"),
    ],
)
def test_the_tables_of_tenants_are_one_entry_with_their_schemas(
    tmp_path: Path, schemas: str, partitions: list[str], column: str
) -> None:
    url = f"{{url: 'postgresql:///a', schemas: '{schemas}'}}"
    text = f"databases: [{{database: shop, urls: [{url}], tables: {{items: }}}}]"
    found = numbered.number(loaded(tmp_path, text).config, MemoryNumbers())
    has = [
        source_table("public", "items", "own_id"), source_table("tenant_a", "items", "a_id"),
        source_table("tenant_b", "items", "b_id"), source_table("tenant_a", "rest"),
    ]  # fmt: skip
    items, rest = records.mapped_tables(found, {"shop": has})
    shown = records.mapping(items, 1, found.config.lake, set())
    assert (shown["schema"], shown["partitions"], list(shown["source_columns"])) == ("public", partitions, [column])
    other = records.mapping(rest, 2, found.config.lake, set())
    assert (other["schema"], other["name"], other["replicated"]) == ("tenant_a", "rest", False)
