"""The spool: what lies between reader and executors, sealed if the lake is not to show it, and closed to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.lake.iceberg.engine import spool_folder
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

PLANTED = b"Zq7Redactedx9V"


def modes(folder: Path) -> set[tuple[str, int, int]]:
    """Return what is there, with its mode and its owner."""
    found = set()
    for path in (folder, *folder.iterdir()):
        facts = path.lstat()
        found.add((path.suffix, stat.S_IMODE(facts.st_mode), facts.st_uid))
    return found


@pytest.mark.timeout(600)
def test_nothing_of_it_is_for_others_and_nothing_stays(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items SELECT n, 'copied' FROM generate_series(1, 100) n")
    process = new_process(group({"eu": database}, {"items": {"mask": {"name": "redact"}}}))
    folder = Path(spool_folder(load(process.map, {}).config))
    mine = os.geteuid()
    before = os.umask(0)  # the most that kuvasz could be given
    try:
        process.start(failpoints="before_data_files:kill:1")
    finally:
        os.umask(before)
    process.wait_event("copied")
    assert list(folder.iterdir()) == [], "rows of a copy do not pass it"
    database.execute(f"UPDATE items SET name = '{PLANTED.decode()}' || id")
    process.wait_killed()
    left = [file.read_bytes() for file in folder.glob("*.spool")]
    assert any(len(one) > 100 * len(PLANTED) for one in left), "a kill leaves what was on its way"
    assert not any(PLANTED in one for one in left), "whose key is gone with the process"
    assert modes(folder) == {("", 0o700, mine), (".spool", 0o600, mine)}
    process.start()
    process.wait_confirmed(database)
    process.wait_until(lambda: list(folder.iterdir()) == [], "what the killed one left is gone, and what came since")
    assert sorted(process.rows("items").select(("id", "name")).rows) == [(n, "***") for n in range(1, 101)]
    process.terminate()
    assert not folder.exists() or list(folder.iterdir()) == []
    assert not folder.exists() or modes(folder) == {("", 0o700, mine)}
