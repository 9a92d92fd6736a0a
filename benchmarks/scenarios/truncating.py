"""TRUNCATE of a large table: how long it takes to be seen under each table type, and what it leaves of files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import psycopg
from typing_extensions import override

from benchmarks.outcome import Outcome, WrongResultError
from benchmarks.run import APPLY_S, START_S
from benchmarks.scenario import Scenario
from benchmarks.subject import Group, Subject
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.stand import Stand

_TABLE = "load_0"

_TYPES = ("clone", "append", "history")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncating(Scenario):
    """One table, followed once as each type; each TRUNCATE is waited for before anything else happens."""

    rows: int = 1_000_000
    format_version: int = 3
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows, seed=self.seed)
        url = stand.database("bench")
        stand.say("filling the source")
        load.create(url)
        groups = [
            Group(database=name, urls=[(None, url)], fields=load.fields, prefix=f"{name}_", spec={"type": name})
            for name in _TYPES
        ]
        subject = Subject(stand.folder, groups, lake={"format_version": self.format_version})
        outcome = Outcome()
        with subject.watch() as watch, subject.start() as run:
            run.wait_for("streaming", timeout_s=START_S + APPLY_S, count=len(groups))
            _count_files(subject, outcome, "before")
            stand.say("TRUNCATE")
            with psycopg.connect(url, autocommit=True) as connection:
                [(lsn,)] = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
                connection.execute("SET synchronous_commit = on")
                connection.execute(f"TRUNCATE {_TABLE}")
                connection.execute(load.fill(_TABLE, self.rows + 1, self.rows + 1))  # an append ignores the TRUNCATE
                [(began,)] = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchall()
            goals = subject.places({url: int(lsn)})
            watch.wait_for(goals, timeout_s=APPLY_S, is_alive=run.check)
            for place, goal in goals.items():
                seen = watch.visible_at({place: goal})
                assert seen is not None
                outcome.add(f"{place[1]}: seen after", seen - float(began), "s")
            run.end()
        _count_files(subject, outcome, "after")
        stand.say("counting what is left")
        for name in _TYPES:
            wanted = 0 if name == "clone" else self.rows
            before = f"id <= {self.rows}" + (" and kvsz_deleted = true" if name == "history" else "")
            found = subject.scan(f"{name}_{_TABLE}").filter(before).count()
            if found != wanted:
                raise WrongResultError(f"{name}: {found} of the rows from before are left, not {wanted}")
        return outcome


def _count_files(subject: Subject, outcome: Outcome, when: str) -> None:
    for name in _TYPES:
        tasks = list(subject.scan(f"{name}_{_TABLE}").plan_files())
        outcome.add(f"{name}: data files {when}", len(tasks), "")
        outcome.add(f"{name}: delete files {when}", sum(len(task.delete_files) for task in tasks), "")
