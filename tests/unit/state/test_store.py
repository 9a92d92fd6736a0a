from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.state.store import cluster_member, log_index, state_of
from kuvasz.verbs.replicate import Replicator

TABLES = "databases: [{database: shop, urls: [{url: postgresql://h/d}], tables: {t: }}]"


def config(folder: Path, cluster: str = "") -> Config:
    (folder / "map.yaml").write_text(f"pipeline: {{state: kept}}\n{cluster}\n{TABLES}\n")
    return load.load(folder / "map.yaml").config


def test_the_store_is_the_folder_of_the_map(tmp_path: Path) -> None:
    found = config(tmp_path)
    assert Path(state_of(found).record("shop_eu").place).is_relative_to(tmp_path / "kept")
    assert cluster_member(found, "looks", lambda _: None) is None
    assert log_index(found) is None


def test_with_a_coordinator_it_is_that_one_and_the_same_for_all_of_a_process(tmp_path: Path) -> None:
    found = config(tmp_path, "cluster: {coordinator: 'postgresql://ann:secret@db/kuvasz', name: prod}")
    store = state_of(found)
    assert store.place == "the coordinator db:5432/kuvasz, cluster prod"
    assert (
        state_of(config(tmp_path, "cluster: {coordinator: 'postgresql://ann:secret@db/kuvasz', name: prod}")) is store
    )
    assert state_of(config(tmp_path, "cluster: {coordinator: 'postgresql://ann:secret@db/kuvasz'}")) is not store
    assert cluster_member(found, "looks", lambda _: None) is not None
    index = log_index(found)
    assert index is not None
    assert index.place == store.place


def test_a_program_that_must_not_end_at_once_is_none_of_a_cluster(tmp_path: Path) -> None:
    config(tmp_path, "cluster: {coordinator: 'postgresql://db/kuvasz'}")
    with pytest.raises(ConfigError, match="cannot be one of a cluster"):
        Replicator(tmp_path / "map.yaml")
