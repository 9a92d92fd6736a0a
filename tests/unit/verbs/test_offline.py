from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
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


def test_an_unknown_table_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="the map has no table 'nobody' of source 'eu'"):
        offline.command(config, "pause", table="nobody", sid="eu")
