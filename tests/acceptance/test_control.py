"""Commands and states over kills: whatever is cut off goes on with the next start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kuvasz import lsn
from tests.support.lake import group
from tests.support.load import TABLE, TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process, tell

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def process(database: Database, new_process: Callable[..., Process]) -> Process:
    create_tables(database)
    fill_tables(database)
    return new_process(group({"eu": database}, dict.fromkeys(TABLES)))


#: Where a copy beside the stream is cut off: before it has a slot, and with all of it read.
SOME = ("slot_created:kill", "before_commit:kill")
ALL = ("position_forgotten:kill", "slot_created:kill", "copy_range_done:kill", "before_commit:kill")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("points", [SOME, ALL], ids=["some", "all"])
def test_a_copy_beside_the_stream_is_taken_up_again_wherever_it_was_cut_off(
    process: Process, database: Database, capsys: pytest.CaptureFixture[str], points: tuple[str, ...]
) -> None:
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    rows = len(process.rows(TABLE))
    told = tell(process, "resync", "--table", TABLE, capsys=capsys)
    assert told == f"to be copied again: shop.{TABLE} of shop_eu; no kuvasz runs here: noted for its next start\n"
    for point in points:
        process.start(failpoints=point)
        process.wait_killed()
        assert len(process.rows(TABLE)) == rows, f"the old rows stay at {point}"
        assert not process.found("copied"), point
    with Load(database, 7):
        process.start()
        copied = process.wait_event("copied")
        assert copied["table"] == f"shop.{TABLE}"
        process.wait_event("committed", 5)
    process.wait_confirmed(database)
    for table in TABLES:
        process.assert_equal(table, source_rows(database.url, table, sid="eu"), key=("sid", "id"))
    assert [event["table"] for event in process.found("copied")] == [f"shop.{TABLE}"]


@pytest.mark.slow
def test_a_copy_counts_that_was_killed_before_anything_behind_it_was_confirmed(
    process: Process, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slot stands before it, as that of a backup would; but the server was not started anew."""
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    tell(process, "resync", "--table", TABLE, capsys=capsys)
    process.start(failpoints="after_commit:kill")
    process.wait_killed()
    (copied,) = process.positions(TABLE).values()
    ask = (
        "SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots"
        " WHERE NOT temporary AND database = current_database()"
    )
    assert database.execute(ask, [lsn.render(copied.lsn)]) == [(True,)]
    process.start()
    process.wait_confirmed(database)
    for table in TABLES:
        process.assert_equal(table, source_rows(database.url, table, sid="eu"), key=("sid", "id"))
    assert not process.found("copied")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_paused_table_stays_paused_over_kills_and_a_lost_source_is_copied_again(
    process: Process, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    before = process.positions(TABLE)
    tell(process, "pause", "--table", TABLE, capsys=capsys)
    with Load(database, 8):
        process.start()
        process.wait_event("committed", 5)
        helpers = process.helpers()
        process.begin_kill()
        process.wait()
        process.wait_helpers(helpers)
        process.start()
        process.wait_event("committed", 5)
        assert not [event for event in process.found("committed") if event["table"] == f"shop.{TABLE}"]
    process.terminate()
    assert process.positions(TABLE) == before
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )
    process.start()
    assert process.wait() == 5, process.report()
    assert "slot kuvasz_shop_eu is gone: the changes between" in process.found("source_stopped")[-1]["error"]
    tell(process, "resume", "--table", TABLE, capsys=capsys)
    (databases,) = group({"eu": database}, dict.fromkeys(TABLES))
    process.write_map([databases | {"on_slot_lost": "resync"}])
    for point in ("slot_dropped:kill", "slot_created:kill", "copy_range_done:kill"):
        process.start(failpoints=point)
        process.wait_killed()
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for table in TABLES:
        process.assert_equal(table, source_rows(database.url, table, sid="eu"), key=("sid", "id"))
