from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.parking.log import ParkingLog
from kuvasz.parking.log_folder import FOLDER, LogFolder
from kuvasz.parking.ports import LogDamaged

T, S = "shop.items", "shop_eu"


@pytest.mark.parametrize("target", ["shop.items", "a/b.c", "ä" * 63 + "." + "ö" * 63, "shop.Items", "..", "a\nb"])
def test_any_name_gets_a_file_of_its_own(tmp_path: Path, target: str) -> None:
    for name in (target, target + " "):
        LogFolder(tmp_path).create(name, S)
    files = list((tmp_path / FOLDER / S).iterdir())
    assert len(files) == 2
    assert all(file.suffix == ".log" for file in files)


def test_a_file_has_the_name_it_always_had(tmp_path: Path) -> None:
    made = LogFolder(tmp_path).create(T, S)
    assert made.place == str(tmp_path / "parked" / "shop_eu" / "shop.items-03513a92ba55.log")


def test_a_log_that_is_another_one_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LogFolder(tmp_path).create(T, S).place
    closed: list[str] = []

    def close(log: ParkingLog) -> None:
        closed.append(log.place)

    monkeypatch.setattr(ParkingLog, "close", close)
    with pytest.raises(LogDamaged, match="is another log than the lake's table knows"):
        LogFolder(tmp_path).load(T, S, "f" * 32)
    assert closed == [place]


def test_a_file_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    with pytest.raises(StateError, match="cannot be removed: not a directory"):
        LogFolder(tmp_path).remove(T, S)
