"""The stages of a backlog: kuvasz with everything after a stage left out, so that a loss can be placed.

    python -m benchmarks.stages <stage> --config map.yaml …

runs the program with a null sink (`benchmarks.sinks`): `reading` throws the changes away, `decoding` decodes every
value on the executors, `folding` folds by key as well, `writing` also writes the data files. The source's slot moves
on although nothing was committed; `drain_all` puts it back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psycopg

from benchmarks import reference
from benchmarks.run import APPLY_S, START_S

if TYPE_CHECKING:
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject

STAGES = ("reading", "decoding", "folding", "writing")


def drain_all(stand: Stand, subject: Subject, rows: int) -> dict[str, float]:
    """Drain the backlog up to every stage and return the seconds; the backlog is still there afterwards."""
    found = {}
    for stage in STAGES:
        stand.say(f"backlog into a null sink after {stage}")
        slots = [(url, slot := _slot(url), f"kept_{slot}"[:63]) for url in subject.urls]
        for url, slot, kept in slots:
            reference.copy_slot(url, slot, kept)
        found[stage] = _drain(stand, subject, stage, rows)
        for url, slot, kept in slots:
            reference.drop_slot(url, slot)
            reference.copy_slot(url, kept, slot)
            reference.drop_slot(url, kept)
    return found


def _drain(stand: Stand, subject: Subject, stage: str, rows: int) -> float:
    command = (sys.executable, "-m", "benchmarks.stages", stage)
    with subject.start(command=command) as run, stand.profiled(run, stage):
        streaming = run.wait_for("streaming", timeout_s=START_S, count=len(subject.urls))
        committed = run.wait_rows(rows, timeout_s=APPLY_S)
        run.end()
    return float(committed[-1]["seen_at"] - streaming[0]["seen_at"])


def _slot(url: str) -> str:
    with psycopg.connect(url) as connection:
        [(slot,)] = connection.execute(
            "SELECT slot_name FROM pg_replication_slots"
            " WHERE database = current_database() AND slot_name LIKE 'kuvasz%'"
        ).fetchall()
    return str(slot)


if __name__ == "__main__":
    # Here, so that the sinks are no part of __main__: the executors unpickle jobs by the name of their module.
    from benchmarks import sinks

    sinks.run(sys.argv[1], sys.argv[2:])
