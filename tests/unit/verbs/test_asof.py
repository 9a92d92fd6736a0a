"""Moments looked up in lakes of a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import parser

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.lake.definition.lineage import LakeSnapshot, lineage_of
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition, TableType
from kuvasz.verbs import asof
from kuvasz.verbs.lakeview import LineageView


def position(lsn: int, second: float = 0) -> SourcePosition:
    """One behind a transaction, or of a copy."""
    us = round(second * 1e6) - POSTGRES_EPOCH_US
    return SourcePosition(lsn=lsn, commit_lsn=lsn - 8 if second else 0, commit_us=us if second else 0)


def view(*steps: dict[str, SourcePosition], first: int = 1, kind: TableType = TableType.CLONE) -> LineageView:
    """A table with snapshots 1, 2, … of seconds 10, 20, …; those before `first` were expired."""
    snapshots = {
        number: LakeSnapshot(id=number, parent_id=number - 1 or None, at_ms=number * 10_000, positions=positions)
        for number, positions in enumerate(steps, 1)
        if number >= first
    }
    now = {name: at for positions in steps for name, at in positions.items()}
    return LineageView(
        lineage=lineage_of(snapshots, len(steps) or None, now), type=kind, metadata_location="file:///wh/it's.json"
    )


STEPS = ({"shop_eu": position(0x100)}, {"shop_eu": position(0x208, 19)}, {"shop_eu": position(0x308, 29)})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    document = {"databases": [{"database": "shop", "urls": urls, "tables": {"items": None, 'or"ders': None}}],
                "lake": {"namespace": "a.b"}}  # fmt: skip
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> dict[str, LineageView]:
    found: dict[str, LineageView] = {}

    class View:
        def __init__(self, config: Config) -> None:
            pass

        def lineage(self, name: str) -> LineageView | None:
            return found.get(name)

    monkeypatch.setattr(asof, "LakeView", View)
    return found


def ask(config: Config, **given: Any) -> tuple[list[str], asof.TableMoment, int]:
    moment, found = asof.tables(config, **{"time": None, "table": "items"} | given)
    (table,) = found
    return asof.render(moment, found).splitlines(), table, asof.exit_code(found)


def test_a_table_is_told_with_what_it_shows_and_what_reads_it(config: Config, lake: dict[str, LineageView]) -> None:
    lake["a.b.items"] = view(*STEPS)
    lines, table, code = ask(config, lsns=["eu:0/250"])
    assert (code, lines) == (0, [
        "as of everything before shop_eu:0/250", "",
        "table a.b.items: snapshot 2, committed 1970-01-01 00:00:20.000+00:00",
        "  shop_eu: everything before 0/208, committed 1970-01-01 00:00:19.000+00:00; the next has all before 0/308",
        "  spark:     SELECT * FROM `kuvasz`.`a`.`b`.`items` VERSION AS OF 2",
        '  trino:     SELECT * FROM "kuvasz"."a.b"."items" FOR VERSION AS OF 2',
        "  duckdb:    SELECT * FROM iceberg_scan('file:///wh/it''s.json', snapshot_from_id = 2)",
        '  pyiceberg: catalog.load_table("a.b.items").scan(snapshot_id=2).to_arrow()',
    ])  # fmt: skip
    assert table.rows is None
    shown = json.loads(json.dumps(asof.as_json(*asof.tables(config, time="1970-01-01", table="items"))))
    assert (shown["time"], shown["lsns"]) == ("1970-01-01 00:00:00.000+00:00", {})
    assert shown["tables"][0]["why_not"] == (
        "its first snapshot shows more than that: shop_eu: everything before 0/100, of a copy"
    )


def test_the_last_snapshot_and_a_copy_are_told_as_such(config: Config, lake: dict[str, LineageView]) -> None:
    lake["a.b.items"] = view(*STEPS)
    assert ask(config, lsns=["eu:0/100"])[0][3] == (
        "  shop_eu: everything before 0/100, of a copy; the next has all before 0/208"
    )
    assert ask(config, time="1970-01-01 01:00")[0][3] == (
        "  shop_eu: everything before 0/308, committed 1970-01-01 00:00:29.000+00:00; no snapshot has more"
    )


def test_names_are_quoted_as_each_engine_has_them(config: Config, lake: dict[str, LineageView]) -> None:
    lake['a.b.or"ders'] = view(*STEPS)
    _, table, _ = ask(config, lsns=["eu:0/208"], table='or"ders')
    assert table.queries["spark"] == 'SELECT * FROM `kuvasz`.`a`.`b`.`or"ders` VERSION AS OF 2'
    assert table.queries["trino"] == 'SELECT * FROM "kuvasz"."a.b"."or""ders" FOR VERSION AS OF 2'
    assert table.queries["pyiceberg"] == 'catalog.load_table("a.b.or\\"ders").scan(snapshot_id=2).to_arrow()'


def test_a_history_shows_a_time_by_its_versions_whatever_was_expired(
    config: Config, lake: dict[str, LineageView]
) -> None:
    lake["a.b.items"] = view(*STEPS, first=3, kind=TableType.HISTORY)
    _, table, code = ask(config, time="1970-01-01 00:00:12.5")
    assert (code, table.snapshot_id) == (0, 3)
    assert table.rows == (
        "kvsz_start <= '1970-01-01T00:00:12.500000+00:00' and kvsz_end > '1970-01-01T00:00:12.500000+00:00'"
    )
    assert parser.parse(table.rows)
    assert table.queries["spark"].endswith(
        " VERSION AS OF 3 WHERE kvsz_start <= TIMESTAMP '1970-01-01 00:00:12.500000+00:00'"
        " AND kvsz_end > TIMESTAMP '1970-01-01 00:00:12.500000+00:00'"
    )
    assert table.queries["trino"].endswith(
        " FOR VERSION AS OF 3 WHERE kvsz_start <= TIMESTAMP '1970-01-01 00:00:12.500000 UTC'"
        " AND kvsz_end > TIMESTAMP '1970-01-01 00:00:12.500000 UTC'"
    )
    assert table.queries["duckdb"].endswith(
        ", snapshot_from_id = 3) WHERE kvsz_start <= TIMESTAMPTZ '1970-01-01 00:00:12.500000+00:00'"
        " AND kvsz_end > TIMESTAMPTZ '1970-01-01 00:00:12.500000+00:00'"
    )
    assert f'row_filter="{table.rows}", snapshot_id=3' in table.queries["pyiceberg"]


def test_a_history_shows_an_lsn_by_the_open_versions_of_its_snapshot(
    config: Config, lake: dict[str, LineageView]
) -> None:
    lake["a.b.items"] = view(*STEPS, kind=TableType.HISTORY)
    _, table, _ = ask(config, lsns=["eu:0/208"])
    assert (table.snapshot_id, table.rows) == (2, "kvsz_end = '9999-01-01T00:00:00+00:00'")
    assert table.queries["trino"].endswith("OF 2 WHERE kvsz_end = TIMESTAMP '9999-01-01 00:00:00 UTC'")


@pytest.mark.parametrize("time", ["9999-01-01", "9999-12-31 23:59:59.999999", "9999-12-31 23:00-05:00"])
def test_a_history_at_the_end_of_all_times_shows_what_has_no_end(
    config: Config, lake: dict[str, LineageView], time: str
) -> None:
    lake["a.b.items"] = view(*STEPS, kind=TableType.HISTORY)
    _, table, code = ask(config, time=time)
    assert (code, table.snapshot_id, table.rows) == (0, 3, "kvsz_end = '9999-01-01T00:00:00+00:00'")


def test_a_history_at_the_first_of_all_times_shows_nothing(config: Config, lake: dict[str, LineageView]) -> None:
    lake["a.b.items"] = view(*STEPS, kind=TableType.HISTORY)
    _, table, code = ask(config, time="0001-01-01 00:00+14:00")
    assert (code, table.rows) == (
        0, "kvsz_start <= '0001-01-01T00:00:00+00:00' and kvsz_end > '0001-01-01T00:00:00+00:00'",
    )  # fmt: skip


def test_what_was_expired_is_said(config: Config, lake: dict[str, LineageView]) -> None:
    lake["a.b.items"] = view(*STEPS, first=2)
    lines, _, code = ask(config, lsns=["eu:0/150"])
    assert (code, lines[2:]) == (1, [
        "table a.b.items: not shown: snapshots of that moment are gone; the oldest that is left shows shop_eu:"
        " everything before 0/208, committed 1970-01-01 00:00:19.000+00:00",
        "hint: keep them longer: `maintenance.snapshot_age`, or tag those that are to stay",
    ])  # fmt: skip
    lake["a.b.items"] = view({"shop_eu": position(0x108, 5)}, {}, {"shop_eu": position(0x308, 29)}, first=2)
    assert ask(config, lsns=["eu:0/150"])[0][2] == (
        "table a.b.items: not shown: snapshots of that moment are gone; the oldest that is left shows shop_eu:"
        " as far as snapshots that were expired had brought it"
    )


@pytest.mark.parametrize(
    ("found", "given", "told"),
    [
        (None, {"lsns": ["eu:0/1"]}, ["there is no such table in the lake", "hint: `kuvasz plan` says why"]),
        (view(), {"lsns": ["eu:0/1"]}, ["nothing was ever written to it: it is empty"]),
        (view(*STEPS), {"lsns": ["us:0/1"]}, ["it has nothing of the source", "hint: see `kuvasz status`"]),
    ],
)
def test_what_is_not_there_is_said(
    config: Config, lake: dict[str, LineageView], found: LineageView | None, given: dict[str, Any], told: list[str]
) -> None:
    if found is not None:
        lake["a.b.items"] = found
    lines, _, code = ask(config, **given)
    assert (code, lines[2:]) == (1, [f"table a.b.items: not shown: {told[0]}", *told[1:]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": "nothing", "lsns": ["eu:0/1"]}, "the map has no table 'nothing'"),
        ({}, "--time and --lsn: which of the two?"),
        ({"lsns": ["ap:0/1"]}, "--lsn ap:0/1: of which source?"),
    ],
)
def test_what_makes_no_sense_is_told(config: Config, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        ask(config, **given)
    assert told.value.message == message
