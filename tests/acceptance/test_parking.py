"""Parked changes over kills: none is lost and none is applied twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.load import TABLE, TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process, confirmed, tell

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Failpoints on the way into the log, and on the way out of it.
SOME = (("park_written:2",), ("replay_applied",))
ALL = (
    ("park_noted", "before_park", "park_written:2", "after_park:3"),
    ("replay_read", "before_commit:2", "replay_applied", "before_unpark", "after_unpark"),
)


def killing(point: str) -> str:
    name, _, passes = point.partition(":")
    return f"{name}:kill:{passes or 1}"


def update_all(database: Database) -> None:
    """A transaction of many parts. It locks rows in another order than the load does."""
    with database.connect() as session:
        session.execute("LOCK TABLE items IN EXCLUSIVE MODE")
        session.execute("UPDATE items SET n = n + 100, name = repeat(id::text, 20)")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [SOME, ALL], ids=["some", "all"])
def test_parked_changes_survive_a_kill_anywhere(
    database: Database,
    new_process: Callable[..., Process],
    capsys: pytest.CaptureFixture[str],
    points: tuple[tuple[str, ...], ...],
) -> None:
    into, out = points
    create_tables(database)
    fill_tables(database)
    options = {"transaction_spill_bytes": "64kB"}  # so that transactions are parked and replayed in parts
    process = new_process(group({"eu": database}, dict.fromkeys(TABLES)), pipeline=options)
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    before = process.rows(TABLE)
    tell(process, "pause", "--table", TABLE, capsys=capsys)
    with Load(database, 11):
        for point in into:
            process.start(failpoints=killing(point))
            process.wait_killed()
        process.start()
        update_all(database)
        ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        process.wait_until(lambda: confirmed(database, now), "the source lets go of its WAL")
        process.terminate()
        assert process.rows(TABLE) == before
        tell(process, "resume", "--table", TABLE, capsys=capsys)
        for point in out:
            process.start(failpoints=killing(point))
            process.wait_killed()
            update_all(database)
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for table in TABLES:
        process.assert_equal(table, source_rows(database.url, table, sid="eu"), key=("sid", "id"))
    assert not process.parked()
