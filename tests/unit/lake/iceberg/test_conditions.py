"""A start and `kuvasz check` go by one list."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import KuvaszError
from kuvasz.lake.iceberg import conditions
from kuvasz.lake.iceberg.engine import Engine
from kuvasz.lake.java import jars, region
from kuvasz.verbs import check

SHOP = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}


def _no_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder))


def _no_jars(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(jars, "cached", lambda _: None)
    monkeypatch.setattr(jars, "_CENTRAL", ("127.0.0.1", 1))


def _no_region(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(region, "_VENDOR", folder / "none")


BROKEN = {"java": _no_java, "jars": _no_jars, "region": _no_region}


def test_every_condition_is_tried_here() -> None:
    assert [condition.name for condition in conditions.BEFORE_SPARK] == list(BROKEN)


@pytest.mark.parametrize("name", BROKEN)
def test_what_stops_a_start_is_found_by_check(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A name that is no table of a catalog that is there: nothing is made, and nothing is asked over a network.
    lake = {
        "uri": f"jdbc:sqlite:{tmp_path}/c.db",
        "warehouse": "s3://nowhere/wh",
        "properties": {"s3.endpoint": "http://127.0.0.1:1"},
    }
    config = Config(databases=[SHOP], lake=lake, pipeline={"state": str(tmp_path / "state")})
    if name != "region":
        monkeypatch.setenv("AWS_REGION", "us-east-1")
    if name != "jars":
        monkeypatch.setattr(jars, "cached", lambda _: tmp_path)
    BROKEN[name](monkeypatch, tmp_path)
    with pytest.raises(KuvaszError) as stopped:
        Engine(config).open()
    (finding,) = [one for one in check.of_machine(config) if not one.ok]
    assert (finding.source, finding.check) == ("machine", name)
    assert (finding.value, finding.fix) == (stopped.value.message, stopped.value.hint)
    assert finding.is_blocking


@pytest.mark.parametrize(
    ("lake", "told"),
    [
        ({}, []),
        ({"warehouse": "s3://lake/wh"}, []),
        ({"type": "hive", "uri": "thrift://db:9083", "warehouse": "s3://lake/wh"}, ["a hive catalog"]),
        ({"type": "glue", "uri": "", "warehouse": "s3://lake/wh"}, ["a glue catalog"]),
        ({"warehouse": "gs://lake/wh"}, ["a warehouse on gs://"]),
        ({"type": "hive", "uri": "thrift://db:9083", "warehouse": "abfss://lake@b/wh"},
         ["a hive catalog", "a warehouse on abfss://"]),
    ],
)  # fmt: skip
def test_what_no_test_ran_with_is_named(lake: dict, told: list[str]) -> None:
    assert conditions.untried(Config(databases=[SHOP], lake=lake)) == told
    found = [check._untried(what) for what in told]
    assert not any(one.is_blocking for one in found)
