"""What the example of docs/destinations.md adds to the lake in memory: a file, in whole transactions."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from examples import sqlite_lake
from kuvasz.errors import LakeError
from tests.support.worlds import SqliteWorld


def shown(file: Path) -> tuple[list[tuple], list[tuple]]:
    """What a program that reads the file sees: rows, and how far the sources are in them."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = database.execute('SELECT * FROM "shop.items" ORDER BY id').fetchall()
        return rows, database.execute("SELECT target, source, lsn FROM positions").fetchall()


def test_rows_and_positions_are_in_the_file_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SqliteWorld(tmp_path / "lake.db")
    world.prepare("eu")
    world.copy("eu", (1, 1, "one"), lsn=2000)
    before = shown(tmp_path / "lake.db")
    assert (len(before[0]), before[1]) == (1, [("shop.items", "eu", 2000)])

    def fail(_: object) -> object:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(sqlite_lake, "_plain", fail)
    with pytest.raises(LakeError, match="disk full"):
        world.copy("eu", (1, 1, "one"), (2, 2, "two"), lsn=3000)
    assert shown(tmp_path / "lake.db") == before
    monkeypatch.undo()
    world.copy("eu", (1, 1, "one"), (2, 2, "two"), lsn=4000)
    after = shown(tmp_path / "lake.db")
    assert (len(after[0]), after[1]) == (2, [("shop.items", "eu", 4000)])
