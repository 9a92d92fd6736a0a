"""Partitions that are truncated, dropped, detached and attached, over kills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EVENTS = """
CREATE TABLE events (id int, month int, n int, PRIMARY KEY (id, month)) PARTITION BY LIST (month);
CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2);
CREATE TABLE events_3 PARTITION OF events FOR VALUES IN (3) PARTITION BY HASH (id);
CREATE TABLE events_3_a PARTITION OF events_3 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE events_4 PARTITION OF events FOR VALUES IN (4);
INSERT INTO events SELECT i, 1 + i % 4, 0 FROM generate_series(1, 400) i;
"""
#: Each with the point at which kuvasz is killed when it finds that.
STEPS = [
    ("TRUNCATE events_1; INSERT INTO events VALUES (1, 1, 1)", "position_forgotten:kill"),
    ("DROP TABLE events_2; CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2)", "slot_created:kill"),
    ("INSERT INTO events VALUES (2, 2, 2); TRUNCATE events_3_a", "gap_compared:kill"),
    ("ALTER TABLE events DETACH PARTITION events_4; UPDATE events SET n = 4", "before_commit:kill"),
    ("CREATE TABLE p PARTITION OF events FOR VALUES IN (5); INSERT INTO events VALUES (5, 5, 5); DROP TABLE p", ""),
]
#: A partition made anew, found before its comparison has a slot; one detached, with the comparison all but committed.
SOME = [STEPS[1], *STEPS[3:]]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [SOME, STEPS], ids=["some", "all"])
def test_what_becomes_of_partitions_is_found_again_wherever_it_was_cut_off(
    database: Database, new_process: Callable[..., Process], steps: list[tuple[str, str]]
) -> None:
    def run(script: str) -> None:
        for statement in script.split(";"):
            database.execute(statement)

    database.execute(EVENTS)
    process = new_process(group({"eu": database}, {"events": None}))
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for script, point in steps:
        run(script)
        process.start(failpoints=point)
        if point:
            process.wait_killed()
    process.wait_event("repaired")
    process.wait_confirmed(database)
    process.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=("sid", "id", "month"))
