from __future__ import annotations

from pathlib import Path

from kuvasz.config import load
from kuvasz.parking.coordinated_logs import CoordinatedLogs
from kuvasz.parking.store import logs_of
from tests.support.changes import Sender, insert

TABLES = "databases: [{database: shop, urls: [{url: postgresql://h/d}], tables: {t: }}]"


def test_the_store_is_the_folder_of_the_map(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(f"pipeline: {{state: kept}}\n{TABLES}\n")
    config = load.load(tmp_path / "map.yaml").config
    assert Path(logs_of(config).create("shop.items", "eu").place).is_relative_to(tmp_path / "kept")


def test_the_secrets_of_the_map_seal_what_is_parked(tmp_path: Path) -> None:
    secrets = "seal_secret: a secret of the sixteen, earlier_seal_secret: what was one before"
    (tmp_path / "map.yaml").write_text(f"pipeline: {{{secrets}}}\n{TABLES}\n")
    made = logs_of(load.load(tmp_path / "map.yaml").config).create("shop.items", "eu")
    made.append([Sender().one(insert(1, 1, "Zq7"))], 1108, is_open=False, most_bytes=1 << 20)
    assert made.size > 100
    assert b"Zq7" not in Path(made.place).read_bytes()


def test_the_logs_of_a_cluster_are_shared(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(f"cluster: {{coordinator: 'postgresql://db/kuvasz'}}\n{TABLES}\n")
    assert isinstance(logs_of(load.load(tmp_path / "map.yaml").config), CoordinatedLogs)
