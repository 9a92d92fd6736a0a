from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.config.sources import Source
from kuvasz.errors import SlotLost, SourceRefused
from kuvasz.lake.format import table_identity
from kuvasz.model import Column, SourcePosition
from kuvasz.source.catalog import sizes
from kuvasz.source.catalog.table import SourceTable
from kuvasz.source.slots import SlotState
from kuvasz.typemap import BUILTIN
from kuvasz.verbs import plan
from kuvasz.verbs.lakeview import LakeTableView
from kuvasz.verbs.plan import ColumnPlan, SourcePlan, TablePlan
from tests.support.changes import ITEMS
from tests.support.scene import CATALOG

COLUMNS = {column.name: "text" for column in ITEMS.columns}
ID = ColumnPlan(name="id", postgresql="int4", iceberg="int", note="", is_key=True, is_new=False)
PRICE = ColumnPlan(name="price", postgresql="numeric", iceberg="string", note="exact", is_key=False, is_new=True)
COPY = TablePlan(
    table="public.items", target="shop.items", action="copy", is_new_target=True, bytes=3 << 20, rows=1200,
    columns=(ID,),
)  # fmt: skip
FOLLOW = TablePlan(table="public.items", target="shop.items", action="follow", columns=(ID,))
REFUSED = TablePlan(table="public.t", target="shop.t", action="error", error="it has no key", hint="add one")
SOURCE = SourcePlan(source="shop_eu", location="rep@eu:5432/shop", slot="kuvasz_shop_eu")
SLOT = SlotState(
    name="kuvasz_shop_eu", plugin="pgoutput", database="shop", is_temporary=False, active_pid=None,
    confirmed_flush_lsn=1, restart_lsn=1, wal_status="reserved", safe_wal_bytes=None, retained_bytes=0,
)  # fmt: skip


def source(folder: Path, **table: Any) -> Source:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    databases = [{"database": "shop", "urls": urls, "tables": {"items": table or None}}]
    file = folder / "map.yaml"
    file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": databases}))
    return config_sources.resolve(load(file, {}).config)[0]


def planned(
    folder: Path, view: LakeTableView | None = None, found: SourceTable | None = CATALOG, **map_: Any
) -> TablePlan:
    one = source(folder, **map_)
    (spec,) = one.tables
    return plan._table(one, spec, found, view, lambda *place: f"{'/'.join(place)}: ")


def test_a_clone_of_the_lake_becomes_what_the_map_says_and_what_keeps_the_past_does_not(tmp_path: Path) -> None:
    made = {table_identity.SEED_PROPERTY: "00", table_identity.KEY_PROPERTY: '["id"]'}
    known = LakeTableView(columns=COLUMNS, positions={"shop_eu": SourcePosition(lsn=1)}, made=made)
    told = planned(tmp_path, known, type="history")
    assert (told.action, told.why) == ("copy", "it becomes a table of type history")
    known = dataclasses.replace(known, made=made | {table_identity.TYPE_PROPERTY: "append"})
    told = planned(tmp_path, known, type="history")
    assert (told.action, told.error) == (
        "error", "table shop.items was made as append, and the map says history",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "is_due"),
    [
        ({}, False),
        ({"tables": (FOLLOW,)}, False),
        ({"tables": (FOLLOW, COPY)}, True),
        ({"tables": (REFUSED, COPY)}, True),
        ({"tables": (dataclasses.replace(COPY, action="skip"),)}, True),
        ({"tables": (dataclasses.replace(FOLLOW, columns=(ID, PRICE)),)}, True),
        ({"is_new_slot": True}, True),
        ({"statements": ("CREATE PUBLICATION …",)}, True),
    ],
)
def test_what_a_start_would_change_is_due(facts: dict[str, Any], is_due: bool) -> None:
    found = dataclasses.replace(SOURCE, **facts)
    assert found.is_due is is_due
    assert plan.exit_code([SOURCE, found]) == (4 if is_due else 0)
    assert plan.as_json([found])[0]["is_due"] is is_due


def test_a_table_that_a_start_leaves_in_error_is_not_nothing_to_do() -> None:
    """Its rows were made by another rule, which `kuvasz check` does not look at."""
    found = dataclasses.replace(SOURCE, tables=(FOLLOW, REFUSED))
    assert (found.is_due, plan.exit_code([SOURCE, found])) == (False, 1)
    assert "  nothing to change: the stream goes on, but for tables in error" in plan.render([found]).splitlines()


def test_what_a_table_may_lack_is_told_and_is_no_change() -> None:
    found = dataclasses.replace(FOLLOW, warnings=("the rows of public.child are not replicated; map them too",))
    assert plan._render_table(found) == [
        "  warning: table public.items: the rows of public.child are not replicated; map them too"
    ]
    assert plan.exit_code([dataclasses.replace(SOURCE, tables=(found,))]) == 0


def test_the_worst_error_of_a_source_is_the_exit_code() -> None:
    failed = [dataclasses.replace(SOURCE, error="x", error_code=code, is_new_slot=True) for code in (1, 5, 3)]
    assert plan.exit_code([SOURCE, *failed]) == 5


def test_a_table_without_a_position_is_copied(tmp_path: Path) -> None:
    found = planned(tmp_path, None, dataclasses.replace(CATALOG, pages=2, row_estimate=9))
    assert (found.action, found.is_new_target, found.bytes, found.rows) == ("copy", True, 16384, 9)
    there = LakeTableView(columns=COLUMNS, positions={"shop_us": SourcePosition(lsn=5)})
    found = planned(tmp_path, there)
    assert (found.action, found.is_new_target) == ("copy", False)


def test_what_is_copied_is_as_large_as_the_source_says_unless_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[int | None] = [2, None]

    def sized(_: object, tables: list[SourceTable]) -> list[SourceTable]:
        return [dataclasses.replace(table, pages=known.pop(0)) for table in tables]

    monkeypatch.setattr(sizes, "sized_unless_locked", sized)
    one, found = source(tmp_path), {CATALOG.table: CATALOG}
    now = [plan._with_sizes(None, one, [table], found)[0] for table in (COPY, COPY, FOLLOW)]
    assert [table.bytes for table in now] == [16384, None, 0]
    unknown = dataclasses.replace(COPY, bytes=None)
    told = plan.render([dataclasses.replace(SOURCE, tables=(COPY, unknown))]).splitlines()
    assert "  copy public.items into shop.items (to be made): –, about 1,200 rows" in told
    assert told[-1] == "1 of 1 sources with changes due; 2 tables to copy, at least 3.0 MB at the sources"


def test_a_table_with_a_position_is_followed(tmp_path: Path) -> None:
    there = LakeTableView(columns=COLUMNS, positions={"shop_eu": SourcePosition(lsn=5)})
    found = planned(tmp_path, there)
    assert (found.action, found.bytes, found.rows) == ("follow", 0, None)
    assert not any(column.is_new for column in found.columns)


def test_a_table_whose_rows_another_rule_of_the_map_made_is_copied_again(tmp_path: Path) -> None:
    there = LakeTableView(
        columns=COLUMNS, positions={"shop_eu": SourcePosition(lsn=5)}, rules={"shop_eu": "-.-.-.-.error"}
    )
    assert planned(tmp_path, there).action == "follow"
    found = planned(tmp_path, there, filter="id > 0")
    why = "`filter` of the map is another one than the one that its rows were made by"
    assert (found.action, found.why) == ("copy", why)
    assert f"    again: {why}" in plan._render_table(found)
    kept = planned(tmp_path, there, filter="id > 0", type="append")
    assert (kept.action, kept.error) == ("error", f"source shop_eu, table public.items: {why}")
    assert planned(tmp_path, dataclasses.replace(there, rules={}), filter="id > 0").action == "follow"


def test_every_column_says_what_becomes_of_it(tmp_path: Path) -> None:
    columns = (*ITEMS.columns, Column(name="price", pg_type=BUILTIN[1700], attnum=9))
    table = dataclasses.replace(CATALOG, relation=dataclasses.replace(ITEMS, columns=columns))
    there = LakeTableView(columns=COLUMNS, positions={"shop_eu": SourcePosition(lsn=5)})
    first, *_, last = planned(tmp_path, there, table).columns
    assert first == ColumnPlan(
        name="sid", postgresql="", iceberg="string", note="the source's id", is_key=True, is_new=False
    )
    assert (last.name, last.postgresql, last.iceberg, last.is_key, last.is_new) == (
        "price", "numeric", "string", False, True)  # fmt: skip
    assert planned(tmp_path, there, table, exclude=["price"]).columns[-1].name != "price"


def test_columns_that_the_map_computes_are_those_of_the_target(tmp_path: Path) -> None:
    there = LakeTableView(columns={"id": "int"}, positions={})
    found = planned(tmp_path, there, set={"id": "id", "twice": "2 * id"}, key=["id"])
    assert [(one.name, one.postgresql, one.iceberg, one.is_key, one.is_new) for one in found.columns[1:]] == [
        ("id", "id", "as computed", True, False),
        ("twice", "2 * id", "as computed", False, True),
    ]


def test_a_table_that_cannot_be_replicated_says_why(tmp_path: Path) -> None:
    gone = planned(tmp_path, found=None)
    assert (gone.action, gone.columns) == ("error", ())
    assert gone.error
    keyless = dataclasses.replace(
        CATALOG, primary_key=(), why_no_key="it has no key",
        relation=dataclasses.replace(
            ITEMS, columns=tuple(dataclasses.replace(one, is_key=False) for one in ITEMS.columns)
        ),
    )  # fmt: skip
    assert planned(tmp_path, found=keyless).action == "error"


def test_a_slot_that_is_gone_lost_changes_if_the_lake_has_rows(tmp_path: Path) -> None:
    one = source(tmp_path)
    lake: dict[str, LakeTableView | None] = {"shop.items": None}
    assert plan._with_slot(SOURCE, one, None, lake).is_new_slot
    assert not plan._with_slot(SOURCE, one, SLOT, lake).is_new_slot
    lake["shop.items"] = LakeTableView(columns={}, positions={"shop_eu": SourcePosition(lsn=5)})
    with pytest.raises(SlotLost) as told:
        plan._with_slot(SOURCE, one, None, lake)
    assert told.value.message == "source shop_eu: slot kuvasz_shop_eu is gone, but the lake has rows of it"
    for facts, kind, why in (
        ({"plugin": "wal2json"}, SourceRefused, "its plugin is wal2json, not pgoutput"),
        ({"invalidation_reason": "idle_timeout"}, SlotLost, "it was invalidated: idle_timeout"),
    ):
        with pytest.raises(kind) as told:
            plan._with_slot(SOURCE, one, dataclasses.replace(SLOT, **facts), lake)
        assert told.value.message == f"source shop_eu: slot kuvasz_shop_eu cannot be used: {why}"


def test_a_person_sees_what_would_be_done_and_what_becomes_of_columns() -> None:
    renamed = dataclasses.replace(FOLLOW, table="public.goods", mapped="public.items", columns=(ID, PRICE))
    other = dataclasses.replace(SOURCE, source="shop_us", location="rep@us:5432/shop")
    found = [
        dataclasses.replace(SOURCE, statements=("CREATE PUBLICATION p;",), is_new_slot=True, tables=(COPY, REFUSED)),
        dataclasses.replace(other, tables=(renamed,)),
        dataclasses.replace(other, tables=(FOLLOW,)),
        dataclasses.replace(other, error="it is down", hint="start it", error_code=1),
    ]
    assert (
        plan.render(found)
        == """\
source shop_eu (rep@eu:5432/shop)
  CREATE PUBLICATION p;
  create the replication slot kuvasz_shop_eu
  copy public.items into shop.items (to be made): 3.0 MB, about 1,200 rows
  error: table public.t: it has no key
    hint: add one

source shop_us (rep@us:5432/shop)
  follow public.items as public.goods, which is its name now: write that into the map, with `target: shop.items`
  add to shop.items: price

source shop_us (rep@us:5432/shop)
  nothing to change: the stream goes on

source shop_us (rep@us:5432/shop)
  error: it is down
  hint: start it

shop.items  postgresql  iceberg       note
----------  ----------  -------  ---  ----
id          int4        int      key

shop.items  postgresql  iceberg       note
----------  ----------  -------  ---  -----
id          int4        int      key
price       numeric     string        exact

2 of 4 sources with changes due; 1 tables to copy, 3.0 MB at the sources"""
    )


def test_targets_of_one_shape_are_told_once() -> None:
    twice = [dataclasses.replace(SOURCE, source=name, tables=(COPY,)) for name in ("shop_eu", "shop_us")]
    assert plan.render(twice).count("shop.items  postgresql") == 1


def test_rows_that_are_left_out_at_first_are_named(tmp_path: Path) -> None:
    first = planned(tmp_path, initial="skip")
    assert first.action == "skip"
    told = plan._render_table(first)
    assert told[0] == "  follow public.items into shop.items from here on: the rows that it has are left out"
    there = LakeTableView(columns=COLUMNS, positions={"shop_eu": SourcePosition(lsn=5)})
    assert planned(tmp_path, there, initial="skip").action == "follow"
