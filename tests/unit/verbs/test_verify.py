from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.verbs import verify
from kuvasz.verify.report import DifferingKey, Report

EQUAL = Report(
    source="shop_eu", table="public.items", target="shop.items", compared="rows", lsn="0/10", source_rows=1200,
    lake_rows=1200, key=("sid", "id"),
)  # fmt: skip
DIFFERENT = dataclasses.replace(
    EQUAL, lake_rows=1199, missing=2, changed=1, left=3,
    keys=(DifferingKey(kind="missing", key=("eu", "7")), DifferingKey(kind="changed", key=("eu", "8"))),
)  # fmt: skip
FAILED = dataclasses.replace(EQUAL, error="it is down", hint="start it", error_code=3)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    databases = [
        {"database": "shop", "urls": urls, "tables": {"items": None, "billing.prices": {"target": "costs"}}},
        {"database": "crm", "urls": [{"url": "postgresql:///crm"}], "tables": {"people": None}},
    ]
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": databases}))
    return load(file, {}).config


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 0),
        ([EQUAL, dataclasses.replace(EQUAL, skipped="it is paused")], 0),
        ([EQUAL, dataclasses.replace(EQUAL, undecided=1)], 1),
        ([dataclasses.replace(EQUAL, undecided=1), FAILED], 3),
        ([FAILED, DIFFERENT], 4),
        ([dataclasses.replace(DIFFERENT, left=0, mended=3)], 0),
    ],
)
def test_what_differs_still_is_worse_than_what_failed(found: list[Report], code: int) -> None:
    assert verify.exit_code(found) == code


@pytest.mark.parametrize(
    ("table", "sid", "expected"),
    [
        (None, None, ["shop_eu items", "shop_eu prices", "shop_us items", "shop_us prices", "crm people"]),
        (None, "us", ["shop_us items", "shop_us prices"]),
        (None, "shop_us", ["shop_us items", "shop_us prices"]),
        (None, "crm", ["crm people"]),
        ("items", "eu", ["shop_eu items"]),
        ("public.items", "eu", ["shop_eu items"]),
        ("shop.items", "eu", ["shop_eu items"]),
        ("billing.prices", "eu", ["shop_eu prices"]),
        ("costs", "eu", ["shop_eu prices"]),
    ],
)
def test_a_table_is_named_as_the_source_or_the_lake_calls_it(
    config: Config, table: str | None, sid: str | None, expected: list[str]
) -> None:
    chosen = verify._chosen(config, table, sid)
    assert [f"{source.name} {spec.table.name}" for source, spec in chosen] == expected


def test_a_table_that_was_renamed_is_known_by_its_name_in_the_map(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = {"table": "public.goods", "mapped_as": "public.items", "state": "paused", "error": None}
    other = {"table": "billing.prices", "mapped_as": None, "state": "copying", "error": None}
    answer = {"sources": [{"source": "shop_eu", "tables": [renamed, other]}]}
    monkeypatch.setattr(verify.remote, "status", lambda _: answer)
    assert verify._not_following(config) == {
        ("shop_eu", "public.items"): "it is paused", ("shop_eu", "billing.prices"): "it is copying"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "sid", "message", "hint"),
    [
        (None, "ap", "--sid ap: the map has no such source", "it has crm, eu, us"),
        ("prices", "eu", "--table prices: the map has no such table", "it has shop.costs, shop.items"),
        ("people", "us", "--table people: the map has no such table", "it has shop.costs, shop.items"),
    ],
)
def test_what_the_map_does_not_have_is_refused(
    config: Config, table: str | None, sid: str | None, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as told:
        verify._chosen(config, table, sid)
    assert (told.value.message, told.value.hint) == (message, hint)


def lines(**facts: Any) -> list[str]:
    return verify.render([dataclasses.replace(EQUAL, **facts)]).splitlines()[:-1]


def test_a_person_sees_a_line_per_table_and_the_keys_that_differ() -> None:
    member = dataclasses.replace(EQUAL, is_member=True, table="public.items_7", skipped="it is paused")
    assert (
        verify.render([EQUAL, DIFFERENT, FAILED, member])
        == """\
shop.items of shop_eu: equal, 1,200 rows at 0/10 (rows)
shop.items of shop_eu: 3 keys differ (2 missing, 1 changed); 1,200 rows at 0/10 (rows), 1,199 in the lake
  missing  sid=eu, id=7
  changed  sid=eu, id=8
  … the first 2 are shown (at most 100)
shop.items of shop_eu: error: it is down
  hint: start it
public.items_7 in shop.items of shop_eu: skipped: it is paused
2 tables compared, 1 differ, 1 could not be compared"""
    )


def test_what_keeps_a_comparison_from_being_final_is_told() -> None:
    assert lines(gaps=2, waiting=1000, undecided=3)[1:] == [
        "  2 gaps are recorded: changes that were lost at the source",
        "  1,000 keys have changes that kuvasz has still to apply",
        "  3 keys change all the time and could not be decided: verify again",
    ]
    assert lines(rejected=2)[1:] == ["  2 rows of the source do not fit and were rejected: see `kuvasz rejects`"]
    assert lines(faults=3, mended=2, left=1, why_left="correct them")[1:] == [
        "  … the first 0 are shown (at most 100)",
        "  2 keys mended, 1 left",
        "  hint: correct them",
    ]


def test_a_program_gets_keys_by_their_columns() -> None:
    (found,) = verify.as_json([DIFFERENT])
    assert (found["differences"], found["left"], found["error"]) == (3, 3, "")
    assert found["keys"] == [
        {"kind": "missing", "key": {"sid": "eu", "id": "7"}},
        {"kind": "changed", "key": {"sid": "eu", "id": "8"}},
    ]
