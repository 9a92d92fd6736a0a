"""Backlog: changes made while kuvasz was down, drained end to end into the lake.

kuvasz's clock runs from the moment its first source streams to the moment the last change is visible in the catalog:
without the start of Spark, with everything else. `pg_recvlogical` reads the same WAL into /dev/null before and after,
a bare psycopg loop once. Both kuvasz and `pg_recvlogical` are measured by a second clock, too, which is the server's:
from the first slot that is read, with the start of the stream therefore, to the LSN of the last change confirmed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from benchmarks import panels, reference, stages
from benchmarks.outcome import Outcome
from benchmarks.run import APPLY_S, START_S
from benchmarks.sampler import OURS, resident, used
from benchmarks.scenario import Scenario
from benchmarks.shapes import SHAPES
from benchmarks.slot_watch import SlotWatch
from benchmarks.subject import Group, Subject
from benchmarks.tpcb import Tpcb
from benchmarks.workload import Mix, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.reference import Reference
    from benchmarks.stand import Load, Stand
    from benchmarks.workload import Mark

#: No reference has run.
_NONE: Mapping[str, float] = MappingProxyType({})

#: Slots of the references, all at the LSN of kuvasz's own.
_BEFORE, _AFTER, _BARE = "bench_before", "bench_after", "bench_bare"

_CONFIRMED: Final = "drained and confirmed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backlog(Scenario):
    """See the module. Rows and changes are those of all tables of one source."""

    rows: int = 2_000_000
    changes: int = 1_000_000
    updates: float = 0.60
    inserts: float = 0.25  #: what is left are deletes
    hot: float = 0.0
    tables: int = 1
    per_transaction: int = 100
    shape: str = "narrow"
    seed: int = 1
    stages: bool = False  #: drain the same backlog into null sinks, too

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = self.load(stand)
        subject = stand.subject(load)
        stand.copied(subject)
        outcome = drain(stand, subject, load, with_stages=self.stages)
        stand.verify(subject, outcome)
        return outcome

    def load(self, _: Stand) -> Load:
        """Return the workload."""
        mix = Mix(updates=self.updates, inserts=self.inserts, hot=self.hot, per_transaction=self.per_transaction)
        return Workload(
            rows=self.rows,
            changes=self.changes,
            tables=self.tables,
            shape=SHAPES[self.shape],
            seed=self.seed,
            mix=mix,
        )


def waiting(rows: int, changes: int, seed: int) -> Load:
    """Return a table with changes that wait for a start: half of them updates, a quarter inserts."""
    return Workload(rows=rows, changes=changes, seed=seed, mix=Mix(updates=0.5, inserts=0.25, per_transaction=100))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transaction(Backlog):
    """All changes in one transaction."""

    @override
    def load(self, stand: Stand) -> Load:
        return dataclasses.replace(self, per_transaction=self.changes).plain(stand)

    def plain(self, stand: Stand) -> Load:
        """Return the workload as it is."""
        return super().load(stand)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpcbBacklog(Scenario):
    """Transactions of pgbench's TPC-B: four row changes each, in four tables."""

    transactions: int = 100_000
    scale: int = 10
    clients: int = 4
    seed: int = 1
    stages: bool = False

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Tpcb(
            scale=self.scale,
            transactions=self.transactions,
            clients=self.clients,
            seed=self.seed,
            pgbench=stand.server.command("pgbench"),
        )
        subject = stand.subject(load)
        stand.copied(subject)
        outcome = drain(stand, subject, load, with_stages=self.stages)
        stand.verify(subject, outcome)
        return outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class FanIn(Scenario):
    """Many sources into the same tables. Rows and changes are those of all sources together.

    The sources are databases of one server, whose WAL is one: every walsender decodes it whole, kuvasz's as well as
    pg_recvlogical's.
    """

    sources: int = 3
    rows: int = 1_000_000
    changes: int = 500_000
    tables: int = 2
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows // self.sources, changes=self.changes // self.sources, tables=self.tables)
        subject = fan_in(stand, load, self.sources, seed=self.seed)
        stand.copied(subject)
        outcome = drain(stand, subject, load)
        stand.verify(subject, outcome)
        return outcome


def fan_in(stand: Stand, load: Workload, sources: int, *, seed: int) -> Subject:
    """Fill the same tables of several databases, each with content of its own."""
    urls = [(f"s{number}", stand.database(f"bench_{number}")) for number in range(sources)]
    stand.say(f"filling {sources} sources")
    for number, (_, url) in enumerate(urls):
        dataclasses.replace(load, seed=seed + number).create(url)
    return Subject(stand.folder, [Group(database="bench", urls=urls, fields=load.fields)])


def drain(stand: Stand, subject: Subject, load: Load, *, with_stages: bool = False) -> Outcome:
    """Make a backlog in every source, and drain it with the references and with kuvasz."""
    for number, url in enumerate(subject.urls):
        for slot in (_BEFORE, _AFTER, _BARE):
            reference.create_slot(url, f"{slot}_{number}")
    marks = make_changes(stand, subject, load)
    rows = sum(mark.rows for mark in marks.values())
    waiting = _waiting(subject)
    stand.say("bare reader")
    found = {"bare reader": reference.bare_reader(_of(waiting, _BARE), rows=rows)}
    goals = _goals(marks)
    before, before_s = _recvlogical(stand, waiting, _BEFORE, rows, goals)
    sinks = stages.drain_all(stand, subject, rows) if with_stages else {}
    lines = {"pg_recvlogical": before.rows_per_second, "bare reader": found["bare reader"].rows_per_second}
    outcome, seconds = drained(stand, subject, marks, lines)
    after, after_s = _recvlogical(stand, waiting, _AFTER, rows, goals)
    ratio = outcome.value(_CONFIRMED) * min(before_s, after_s) / rows
    outcome.add(f"{_CONFIRMED}, ratio to pg_recvlogical", ratio, "")
    found["pg_recvlogical"] = min((before, after), key=lambda run: run.seconds)
    for name, run in found.items():
        outcome.add(name, run.rows_per_second, "rows/s")
        outcome.add(f"ratio to {name}", run.seconds / seconds, "")
    for name, seconds in sinks.items():
        outcome.add(f"up to {name}", rows / seconds, "rows/s")
    return outcome


def make_changes(stand: Stand, subject: Subject, load: Load) -> dict[str, Mark]:
    """Change all sources side by side and return the mark of each url."""
    stand.say("making changes while kuvasz is down")
    with concurrent.futures.ThreadPoolExecutor(min(8, len(subject.urls))) as pool:
        return dict(zip(subject.urls, pool.map(load.change, subject.urls), strict=True))


def drained(
    stand: Stand, subject: Subject, marks: Mapping[str, Mark], references: Mapping[str, float] = _NONE
) -> tuple[Outcome, float]:
    """Drain with kuvasz what was changed, and return what was found with the seconds it took."""
    stand.say("backlog drained by kuvasz")
    rows = sum(mark.rows for mark in marks.values())
    goals = subject.places({url: mark.lsn for url, mark in marks.items()})
    interval_s = 0.01 if len(goals) == 1 else 0.05
    slots, to_confirm = SlotWatch(subject.urls[0], "kuvasz%"), _goals(marks)
    with slots, subject.watch(interval_s=interval_s) as watch, subject.start() as run:
        # The first of many: others may begin when it is long at work.
        streaming = run.wait_for("streaming", timeout_s=START_S)
        with stand.sampler(run, interval_s=0.25) as sampler, stand.profiled(run, "backlog"):
            ended = watch.wait_for(goals, timeout_s=APPLY_S, is_alive=run.check)
            last = sampler.mark()
        committed = run.named("committed")
        slots.wait_for(to_confirm, run.check)
        run.end()
    outcome = Outcome()
    began = streaming[0]["seen_at"]
    seconds = ended - began
    cpu = used(sampler.samples[0], last)
    outcome.add("rows drained", rows / seconds, "rows/s")
    outcome.add(_CONFIRMED, rows / slots.seconds(to_confirm), "rows/s")
    outcome.add("CPU per row", sum(cpu[kind] for kind in OURS) / rows * 1e6, "µs")
    for kind, spent in cpu.items():
        outcome.add(f"CPU per row, {kind}", spent / rows * 1e6, "µs")
    memory = resident(sampler.samples)
    outcome.add("RSS growth", (max(memory) - memory[0]) / 1e6, "MB")
    outcome.add("RSS at most", max(resident(sampler.samples, OURS)) / 1e6, "MB")
    outcome.add("commits", len(committed), "")
    outcome.panels += [
        panels.throughput(committed, begin=began, end=ended, references=references),
        panels.cpu({"backlog": cpu}, rows),
        *panels.processes(sampler.samples),
    ]
    return outcome, seconds


def _recvlogical(
    stand: Stand, waiting: list[reference.Backlog], slot: str, rows: int, goals: Mapping[str, int]
) -> tuple[Reference, float]:
    """Return what was found, and the seconds by the server's clock."""
    stand.say(f"pg_recvlogical ({slot})")
    log: Path = stand.folder / "recvlogical.log"
    with SlotWatch(waiting[0].url, f"{slot}%") as slots:
        done = reference.recvlogical(stand.server, _of(waiting, slot), rows=rows, log=log)
        slots.wait_for(goals)
    for backlog in _of(waiting, slot):
        reference.drop_slot(backlog.url, backlog.slot)
    return done, slots.seconds(goals)


def _goals(marks: Mapping[str, Mark]) -> dict[str, int]:
    """Return what is to be confirmed of each database; all of them are of one server."""
    return {str(conninfo_to_dict(url)["dbname"]): mark.lsn for url, mark in marks.items()}


def _of(waiting: list[reference.Backlog], slot: str) -> list[reference.Backlog]:
    return [dataclasses.replace(backlog, slot=f"{slot}_{number}") for number, backlog in enumerate(waiting)]


def _waiting(subject: Subject) -> list[reference.Backlog]:
    """Return what waits in every source: the publication that kuvasz made, and the end of the flushed WAL."""
    found = []
    for url in subject.urls:
        with psycopg.connect(url) as connection:
            [(publication,)] = connection.execute(
                "SELECT pubname FROM pg_publication WHERE pubname LIKE 'kuvasz%'"
            ).fetchall()
            [(end_lsn,)] = connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchall()
        found.append(reference.Backlog(url=url, slot="", publication=publication, end_lsn=int(end_lsn)))
    return found
