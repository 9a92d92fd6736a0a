"""A staged log for as long as one likes: two processes read, one applies, and one mishap follows another.

Not part of the suite. `make soak-log MINUTES=60` runs it and leaves `soak-log.json` in benchmarks/out: objects of the
log, rows and size of the coordinator, WAL that sources keep, and the memory of a reader over time. None of it grows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.load import TABLES, Load
from tests.support.oracle import source_rows
from tests.support.outages import HELD, catalog_away, coordinator_away
from tests.support.postgres import create_database, drop_database
from tests.support.process import Process
from tests.support.shared_readers import SharedReaders

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

OUT = Path("benchmarks/out")

SIDS = ("de", "eu", "us")
LEASE_S = 5.0

#: Of the log while changes come, when all else is well: what a second brings, and as much again.
_MOST_OBJECTS = 100

_SAMPLE_S = 2.0

#: What may not grow -> by how much it may all the same, and what is on top of that.
FLAT = {
    "objects": (1.5, 30.0), "slices": (1.5, 200.0), "other rows": (1.2, 20.0), "coordinator MB": (1.5, 10.0),
    "retained MB": (2.0, 50.0), "reader MB": (1.25, 20.0), "reader files": (1.3, 10.0),
}  # fmt: skip


@pytest.fixture
def readers(postgres18: EmbeddedPostgres, new_process: Callable[..., Process]) -> Iterator[SharedReaders]:
    *sources, coordinator = made = [create_database(postgres18) for _ in range(len(SIDS) + 1)]
    yield SharedReaders(dict(zip(SIDS, sources, strict=True)), coordinator, new_process, LEASE_S)
    for database in made:
        drop_database(database)


@pytest.mark.skipif("SOAK_LOG_MINUTES" not in os.environ, reason="make soak-log")
@pytest.mark.timeout(0)
def test_a_log_stays_as_small_as_it_was(readers: SharedReaders) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randint(1, 10**6))
    print(f"seed {seed}", flush=True)
    soak = LogSoak(readers, random.Random(seed))  # noqa: S311
    with soak.watch:
        soak.run(float(os.environ["SOAK_LOG_MINUTES"]) * 60)
    soak.finish()
    soak.watch.judge()


class LogSoak:
    """The processes, and what is done to them.

    Args:
        readers: Two read, and one applies.
        draw: Decides.
    """

    def __init__(self, readers: SharedReaders, draw: random.Random) -> None:
        self.readers = readers
        self.draw = draw
        self.apply = readers.apply
        self.apply._cluster = {**readers.cluster, "role": "apply"}
        self.apply._maintenance = {"interval": "10s", "snapshot_age": "60s", "snapshots_kept": 5}
        self.apply.write_map(readers.groups)
        self.watch = LogWatch(readers)
        self.mishaps: tuple[Callable[[], None], ...] = (
            self.kill_reader, self.a_reader_sleeps, self.drain, self.kill_applier, self.stop_applier,
            self.catalog_is_away, self.coordinator_is_away, self.pause, self.resync, self.add_column,
        )  # fmt: skip

    def run(self, seconds: float) -> None:
        """One mishap after another; behind each the log is short again before the next one comes."""
        begin = time.monotonic()
        self.readers.start("one", "two")
        self.apply.start()
        with contextlib.ExitStack() as stack:
            for database in self.readers.sources.values():
                stack.enter_context(Load(database, self.draw.randrange(1 << 30), pause_s=0.03))
            self.settle("the first copy", begin)
            while time.monotonic() < begin + seconds:
                for mishap in self.draw.sample(self.mishaps, len(self.mishaps)):
                    if time.monotonic() < begin + seconds:
                        at = time.monotonic()
                        mishap()
                        self.settle(mishap.__name__, at)

    def settle(self, what: str, begin: float) -> None:
        """Wait until all that is committed now is in the lake, and the log is short."""
        self.readers.wait_shared("one", "two")
        assert self.readers.is_applied()
        self.apply.wait_until(lambda: self.watch.objects() <= _MOST_OBJECTS, f"the log is short after {what}")
        self.watch.rest()
        print(f"{time.strftime('%H:%M:%S')} {what}: over after {time.monotonic() - begin:.1f} s", flush=True)

    def finish(self) -> None:
        """Without load nothing is left in the log, and everything is equal."""
        assert self.readers.is_applied()
        self.apply.wait_until(lambda: self.watch.objects() == 0, "no object is left")
        left = "SELECT (SELECT count(*) FROM kuvasz.log_slice) + (SELECT count(*) FROM kuvasz.log_object)"
        self.apply.wait_until(lambda: self.readers.coordinator.execute(left) == [(0,)], "nor any row of one")
        for process in (*self.readers.all.values(), self.apply):
            process.terminate()
        for table, columns in TABLES.items():
            rows = [
                source_rows(database.url, table, sid=sid).select((*columns, "sid"))
                for sid, database in self.readers.sources.items()
            ]
            expected = sum(rows[1:], rows[0])
            assert self.apply.rows(table).select((*columns, "sid")) == expected, table

    # Mishaps

    def kill_reader(self) -> None:
        self.readers.all["one"].kill()
        time.sleep(self.draw.uniform(0, 2 * LEASE_S))
        self.readers.start("one")

    def a_reader_sleeps(self) -> None:
        sleeper = self.readers.all["one"]
        os.killpg(sleeper.pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.2, 3) * LEASE_S)
        os.killpg(sleeper.pid, signal.SIGCONT)
        time.sleep(2)  # whoever lost its lease ends
        if not sleeper.is_running:
            self.readers.start("one")

    def drain(self) -> None:
        node = self.readers.node("one")
        for more in ((), ("--undo",)):
            assert self.apply.run("cluster", "drain", node, *more).returncode == 0
            time.sleep(self.draw.uniform(1, 4))

    def kill_applier(self) -> None:
        self.apply.kill()
        time.sleep(self.draw.uniform(0, 2 * LEASE_S))
        self.apply.start()

    def stop_applier(self) -> None:
        self.apply.terminate()
        time.sleep(self.draw.uniform(0, 10))
        self.apply.start()

    def catalog_is_away(self) -> None:
        with catalog_away(self.apply):
            time.sleep(self.draw.uniform(1, 15))

    def coordinator_is_away(self) -> None:
        with coordinator_away(self.readers.coordinator):
            time.sleep(self.draw.uniform(0, 0.4) * LEASE_S)

    def pause(self) -> None:
        table = ("--table", "shop.docs", "--sid", self.draw.choice(SIDS))
        assert self.apply.run("pause", *table).returncode == 0
        time.sleep(self.draw.uniform(1, 10))
        assert self.apply.run("resume", *table).returncode == 0

    def resync(self) -> None:
        done = self.apply.run("resync", "--table", "shop.items", "--sid", self.draw.choice(SIDS))
        assert done.returncode == 0, done.stderr

    def add_column(self) -> None:
        number = self.draw.randrange(1 << 30)
        for database in self.readers.sources.values():
            database.execute(f"ALTER TABLE items ADD COLUMN added_{number} int")
        time.sleep(1)
        for database in self.readers.sources.values():
            database.execute(f"ALTER TABLE items DROP COLUMN added_{number}")


class LogWatch:
    """Looks at all that might grow, every few seconds; of what is judged, when a mishap is over.

    Args:
        readers: The processes.
    """

    def __init__(self, readers: SharedReaders) -> None:
        self._readers = readers
        self._begin = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[dict[str, float]] = []
        self.rests: list[dict[str, float]] = []

    def __enter__(self) -> LogWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        OUT.mkdir(parents=True, exist_ok=True)
        found = {"samples": self.samples, "rests": self.rests}
        (OUT / "soak-log.json").write_text(json.dumps(found))

    def objects(self) -> int:
        """Return how many objects are in the log's folder."""
        folder = self._readers.apply.folder / "log"
        return len(list(folder.iterdir())) if folder.is_dir() else 0

    def rest(self) -> None:
        """Look while nothing is wrong, three times."""
        for _ in range(3):
            self.rests.append(self._look())
            time.sleep(1)

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            with contextlib.suppress(psycopg.Error, psutil.Error, OSError):
                self.samples.append(self._look())

    def _look(self) -> dict[str, float]:
        ask = self._readers.coordinator.execute
        rows = {
            name: ask(f"SELECT count(*)::int FROM kuvasz.{name}")[0][0]
            for (name,) in ask("SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz'")
        }
        ((size,),) = ask("SELECT pg_database_size(current_database())")
        ((held,),) = ask(HELD)
        reader = psutil.Process(self._readers.all["two"].pid)  # to which nothing is done
        of_objects = rows.pop("log_slice", 0), rows.pop("log_object", 0)
        return {
            "at": time.monotonic() - self._begin,
            "objects": self.objects(),
            "slices": sum(of_objects),
            "other rows": sum(rows.values()),
            "coordinator MB": size / 1e6,
            "retained MB": float(held or 0) / 1e6,
            "reader MB": reader.memory_info().rss / 1e6,
            "reader files": reader.num_fds(),
        }

    def judge(self) -> None:
        """Nothing grows: the last quarter of the rests is as their second one."""
        quarter = max(1, len(self.rests) // 4)
        for name, (factor, more) in FLAT.items():
            first = _median(self.rests[quarter : 2 * quarter], name)
            last = _median(self.rests[-quarter:], name)
            print(f"{name:15} {first:10.1f} -> {last:10.1f}", flush=True)
            assert last <= factor * first + more, f"{name} grew from {first} to {last}"


def _median(samples: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(sample[name] for sample in samples)
