"""A schema per tenant: many schemas with the same tables in one database, read through one slot."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from benchmarks import panels
from benchmarks.outcome import Outcome, WrongResultError
from benchmarks.run import APPLY_S, AS_USERS_LOG, START_S
from benchmarks.sampler import OURS, Sample, used
from benchmarks.scenario import Scenario
from benchmarks.slot_watch import SlotWatch
from benchmarks.subject import Group, Subject
from benchmarks.workload import Workload
from kuvasz import lsn
from kuvasz.demo.fingerprint import duckdb_query, postgres_query

if TYPE_CHECKING:
    from benchmarks.run import Run
    from benchmarks.stand import Stand

#: Schemas that one transaction makes.
_AT_ONCE = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tenants(Scenario):
    """First start, start after SIGKILL, rest, and updates of rows of one tenant after the other."""

    schemas: int = 150
    tables: int = 5
    rows: int = 20  #: of each table of a schema
    rate: float = 300.0  #: updates a second
    seconds: float = 30.0
    settle: float = 20.0  #: seconds after the start that do not count as rest
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        url = stand.database("bench")
        load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
        stand.say(f"filling {self.schemas} schemas")
        load.create(url)
        self._fill(url, list(load.fields))
        group = Group(database="bench", urls=[(None, url)], fields=load.fields, schemas="tenant_(.+)")
        subject, outcome = Subject(stand.folder, [group]), Outcome()
        stand.say("first start")
        with subject.start(*AS_USERS_LOG) as run, stand.sampler(run) as sampler, stand.profiled(run, "first"):
            copied = run.wait_for("copied", timeout_s=APPLY_S, count=self.schemas * self.tables)
            _add_start(outcome, "first start", copied[-1]["seen_at"] - run.started_at, sampler.mark())
            os.killpg(run.pid, signal.SIGKILL)
        time.sleep(1.0)
        stand.say("start after SIGKILL")
        with subject.start(*AS_USERS_LOG) as run, stand.sampler(run) as sampler:
            with stand.profiled(run, "second"):
                streaming = run.wait_for("streaming", timeout_s=START_S)
                _add_start(outcome, "start after SIGKILL", streaming[-1]["seen_at"] - run.started_at, sampler.mark())
            time.sleep(self.settle)
            stand.say(f"nothing happens for {self.seconds:g} s")
            first = sampler.mark()
            time.sleep(self.seconds)
            rest = used(first, last := sampler.mark())
            outcome.add("CPU of one core at rest", 100 * sum(rest[k] for k in OURS) / (last.at - first.at), "%")
            with stand.profiled(run, "updates"):
                self._updates(stand, url, run, outcome)
            run.end()
        outcome.panels += panels.processes(sampler.samples)
        stand.say("comparing the lake with the source")
        outcome.add("rows compared", self._compare(url, subject, group), "")
        return outcome

    @property
    def _sids(self) -> list[str]:
        return [f"{number:05d}" for number in range(self.schemas)]

    def _fill(self, url: str, tables: list[str]) -> None:
        """Give each schema the rows of the tables in `public`."""
        with psycopg.connect(url) as connection:
            for number, sid in enumerate(self._sids, 1):
                made = [f"CREATE SCHEMA tenant_{sid}"]
                for table in tables:
                    place = f"tenant_{sid}.{table}"
                    made += [
                        f"CREATE TABLE {place} (LIKE public.{table} INCLUDING ALL)",
                        f"INSERT INTO {place} SELECT * FROM public.{table}",
                    ]
                connection.execute("; ".join(made))
                if number % _AT_ONCE == 0:
                    connection.commit()

    def _updates(self, stand: Stand, url: str, run: Run, outcome: Outcome) -> None:
        """Measure until what has committed is confirmed, which it is once it is visible."""
        stand.say(f"{self.rate:g} updates/s in {self.schemas} schemas for {self.seconds:g} s")
        slot, database, ended = SlotWatch(url), str(conninfo_to_dict(url)["dbname"]), threading.Event()
        marks: list[tuple[float, int]] = []
        random = np.random.default_rng(self.seed)
        with slot, psycopg.connect(url, autocommit=True) as connection:
            began = time.monotonic()
            for number in range(round(self.rate * self.seconds)):
                if (ahead := number / self.rate - (time.monotonic() - began)) > 0:
                    ended.wait(ahead)
                place = f"tenant_{self._sids[random.integers(self.schemas)]}.load_{random.integers(self.tables)}"
                key = 1 + int(random.integers(self.rows))
                connection.execute(f"UPDATE {place} SET amount = amount + 0.01 WHERE id = {key}")
                [(wal,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                marks.append((time.time(), lsn.parse(wal)))
            slot.wait_for({database: marks[-1][1]}, run.check)
        lags = slot.lags(database, marks)
        outcome.add("updates made", len(marks) / (marks[-1][0] - marks[0][0]), "rows/s")
        for name, share in (("p50", 50), ("p99", 99), ("worst", 100)):
            outcome.add(f"lag until confirmed, {name}", float(np.percentile(lags, share)), "s")
        outcome.panels += panels.lags([at for at, _ in marks], lags)

    def _compare(self, url: str, subject: Subject, group: Group) -> int:
        rows, wrong = 0, []
        with psycopg.connect(url) as source, duckdb.connect() as lake:
            for table, fields in group.fields.items():
                lake.register("lake", subject.scan(table).to_arrow())
                for sid in self._sids:
                    [there] = source.execute(postgres_query(f"tenant_{sid}.{table}", fields)).fetchall()
                    [here] = lake.execute(duckdb_query("lake", fields, sid=sid)).fetchall()
                    if [int(one) for one in there] != [int(one) for one in here]:
                        wrong.append(f"{table} of {sid}: source {there}, lake {here}")
                    rows += int(there[0])
        if wrong:
            raise WrongResultError(*wrong)
        return rows


def _add_start(outcome: Outcome, name: str, seconds: float, last: Sample) -> None:
    outcome.add(name, seconds, "s")
    for kind in OURS:
        outcome.add(f"{name}: CPU, {kind}", last.cpu_s[kind], "s")
