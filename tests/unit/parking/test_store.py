from __future__ import annotations

from pathlib import Path

from kuvasz.config import load
from kuvasz.parking.coordinated_logs import CoordinatedLogs
from kuvasz.parking.store import logs_of

TABLES = "databases: [{database: shop, urls: [{url: postgresql://h/d}], tables: {t: }}]"


def test_the_store_is_the_folder_of_the_map(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(f"pipeline: {{state: kept}}\n{TABLES}\n")
    config = load.load(tmp_path / "map.yaml").config
    assert Path(logs_of(config).create("shop.items", "eu").place).is_relative_to(tmp_path / "kept")


def test_the_logs_of_a_cluster_are_shared(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(f"cluster: {{coordinator: 'postgresql://db/kuvasz'}}\n{TABLES}\n")
    assert isinstance(logs_of(load.load(tmp_path / "map.yaml").config), CoordinatedLogs)
