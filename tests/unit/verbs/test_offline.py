from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.catalog import members
from kuvasz.source.catalog.members import Candidate
from kuvasz.state.store import state_of
from kuvasz.state.tables import State, TableStates
from kuvasz.verbs import offline


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    databases = [{"database": "shop", "urls": urls, "tables": {"items": None, "others": None}}]
    document = {"pipeline": {"state": str(tmp_path / "state")}, "lake": {"namespace": "shop"}, "databases": databases}
    (tmp_path / "state").mkdir()
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


def states(config: Config) -> TableStates:
    made = TableStates(state_of(config).notes)
    for source in ("shop_eu", "shop_us"):
        for table in ("items", "others"):
            made.add(f"shop.{table}", source, f"public.{table}")
    return made


def test_what_is_noted_is_found_by_the_next_start(config: Config) -> None:
    answer = offline.command(config, "pause", table="items", sid=None)
    assert [table["source"] for table in answer["tables"]] == ["shop_eu", "shop_us"]
    offline.command(config, "resync", table=None, sid="us")
    offline.command(config, "resume", table="items", sid="eu")
    found = {(s.source, s.target): (s.state, s.is_resync_due) for s in states(config).snapshot()}
    assert found == {
        ("shop_eu", "shop.items"): (State.NEW, False),
        ("shop_eu", "shop.others"): (State.NEW, False),
        ("shop_us", "shop.items"): (State.PAUSED, True),
        ("shop_us", "shop.others"): (State.NEW, True),
    }


@pytest.mark.parametrize("is_due", [True, False], ids=["is to be compared", "was compared once"])
def test_a_person_who_wants_a_copy_gets_no_comparison(config: Config, is_due: bool) -> None:
    made = states(config)
    made.resync("shop.items", "shop_eu", is_due=True, is_repair=True)
    made.resync("shop.items", "shop_eu", is_due=is_due, is_repair=True)
    offline.command(config, "resync", table="items", sid="eu")
    found = states(config).get("shop.items", "shop_eu")
    assert (found.is_resync_due, found.is_repair) == (True, False)


def test_an_unknown_table_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="the map has no table 'nobody' of source 'eu'"):
        offline.command(config, "pause", table="nobody", sid="eu")


@pytest.fixture
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A map whose source has a schema for each of two tenants."""
    databases = [
        {"database": "crm", "urls": [{"url": "postgresql:///x", "schemas": "t_(.+)"}], "tables": {"people": None}}
    ]
    document = {"pipeline": {"state": str(tmp_path / "state")}, "lake": {"namespace": "shop"}, "databases": databases}
    (tmp_path / "state").mkdir()
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    tables = [TableName(schema=f"t_{sid}", name="people") for sid in "ab"]
    candidates = [Candidate(oid=oid, table=table, ancestors=()) for oid, table in enumerate(tables, 7)]
    monkeypatch.setattr(conninfo, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(members, "named", lambda *_: candidates)
    return load(tmp_path / "map.yaml", {}).config


def of_tenants(config: Config) -> dict[str, tuple[State, bool]]:
    """What the next start finds of each."""
    made = TableStates(state_of(config).notes)
    for oid, sid in enumerate("ab", 7):
        made.add("shop.people", f"crm/{oid}@{sid}", f"t_{sid}.people")
    made.spread("crm")
    return {state.table: (state.state, state.is_resync_due) for state in made.snapshot()}


NEW, DUE, STILL = (State.NEW, False), (State.NEW, True), (State.PAUSED, False)


def test_a_tenant_is_meant_alone_and_then_with_the_others(tenants: Config) -> None:
    answer = offline.command(tenants, "pause", table=None, sid="a")
    assert answer["tables"] == [{"source": "crm", "target": "shop.people (a)"}]
    assert of_tenants(tenants) == {"t_a.people": STILL, "t_b.people": NEW}
    offline.command(tenants, "resync", table="people", sid="b")
    assert of_tenants(tenants) == {"t_a.people": STILL, "t_b.people": DUE}
    # A command for all reaches those of which something is noted by itself.
    assert offline.command(tenants, "resume", table="people", sid=None)["tables"] == [
        {"source": "crm", "target": "shop.people"}
    ]
    assert of_tenants(tenants) == {"t_a.people": NEW, "t_b.people": DUE}
    with pytest.raises(ConfigError, match="the map has no source 'c'"):
        offline.command(tenants, "pause", table=None, sid="c")


def test_one_is_taken_out_of_what_is_noted_of_all(tenants: Config) -> None:
    offline.command(tenants, "pause", table="people", sid=None)
    offline.command(tenants, "resume", table=None, sid="b")
    assert of_tenants(tenants) == {"t_a.people": STILL, "t_b.people": NEW}
