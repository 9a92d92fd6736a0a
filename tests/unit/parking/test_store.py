from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kuvasz.parking.store import logs_of


def test_the_store_is_the_folder_of_the_map(tmp_path: Path) -> None:
    config: Any = SimpleNamespace(pipeline=SimpleNamespace(state_folder=tmp_path / "kept"))
    assert Path(logs_of(config).create("shop.items", "eu").place).is_relative_to(tmp_path / "kept")
