"""Targets that `kuvasz check` finds in the lake of another group."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config import load
from kuvasz.config.model import Config
from kuvasz.errors import TableTaken
from kuvasz.state.lakes.memory import MemoryTableOwners
from kuvasz.state.lakes.ports import LakeTablePlace
from kuvasz.verbs.cluster import own_tables

KNOWN = dict[tuple[str | None, str], LakeTablePlace]


def config_of(folder: Path, **lake: str) -> Config:
    file = folder / "map.yaml"
    tables = {"items": None, "apart": {"location": "s3://apart/items/"}}
    databases = [{"database": "d", "urls": [{"url": "postgresql://h/d"}], "tables": tables}]
    cluster = {"coordinator": "postgresql://h/c", "log": "log", "role": "apply", "group": "blue"}
    file.write_text(json.dumps({"databases": databases, "cluster": cluster, "lake": lake}))
    return load.load(file, {}).config


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KNOWN:
    known: KNOWN = {}
    monkeypatch.setattr(own_tables, "table_owners", lambda _: MemoryTableOwners("blue", known))
    return known


def test_targets_that_are_yet_to_be_made_have_the_place_that_they_would_get(tmp_path: Path, known: KNOWN) -> None:
    config = config_of(tmp_path, warehouse="/lake//warehouse/", namespace="shop")
    assert own_tables.prove(config) == "2 targets, all of this lake alone"
    known[None, "shop.items"] = LakeTablePlace(target="shop.items", place="file:///lake/warehouse/shop/items")
    with pytest.raises(TableTaken, match=r"table shop\.items"):
        own_tables.prove(config)
    # As the hint says; a namespace that lies in the other one's folders would do as little.
    assert own_tables.prove(config_of(tmp_path, warehouse="/lake/blue", namespace="shop"))
    known[None, "shop.items"] = LakeTablePlace(target="shop.items", place="s3://apart")
    with pytest.raises(TableTaken, match=r"table shop\.apart"):
        own_tables.prove(config)


def test_those_that_are_there_are_told_by_what_they_are(
    tmp_path: Path, known: KNOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = SimpleNamespace(table_uuid="7", location="s3a://lake/items/")

    def load_one(_: object, name: str) -> object:
        return SimpleNamespace(metadata=metadata) if name.endswith("items") else None

    monkeypatch.setattr(own_tables.LakeView, "load", load_one)
    config = config_of(tmp_path)
    own_tables.prove(config)
    for other in (LakeTablePlace(target="a.b", uuid="7"), LakeTablePlace(target="a.b", place="s3://lake/items")):
        known["green", "a.b"] = other
        with pytest.raises(TableTaken, match="group green"):
            own_tables.prove(config)
