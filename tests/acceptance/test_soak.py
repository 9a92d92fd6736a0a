"""Everything at once, for as long as one likes: load, faults, schema changes, tables that come and go, maintenance.

Not part of the suite. `make soak MINUTES=60` runs it and leaves `soak.json` and `soak.png` in benchmarks/out: memory,
open files, threads, connections, retained WAL and files of the lake over time. The first two thirds have faults that
kuvasz is to survive, so that its memory can be watched; the rest has those that end it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from benchmarks import plots
from benchmarks.outcome import Look, Panel
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import create_database
from tests.support.process import Process
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

OUT = Path("benchmarks/out")

#: As far as two cores that also run three sources keep up with it.
PATIENCE_S = 240.0

_SAMPLE_S = 5.0

#: Merging, expiring and cleaning up as in a day, within minutes.
MAINTENANCE = {"interval": "10s", "snapshot_age": "60s", "snapshots_kept": 5}


@pytest.mark.skipif("SOAK_MINUTES" not in os.environ, reason="make soak")
@pytest.mark.timeout(0)
def test_everything_at_once(new_process: Callable[..., Process]) -> None:
    seconds = float(os.environ["SOAK_MINUTES"]) * 60
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randint(1, 10**6))
    print(f"seed {seed}", flush=True)
    with sources() as towns:
        soak = Soak(towns, new_process, random.Random(seed))  # noqa: S311
        try:
            with soak.watch, soak.load():
                soak.run(seconds)
            soak.finish()
        finally:
            soak.watch.save(seed)


class Town:
    """A source behind a network that may break."""

    def __init__(self, sid: str, server: EmbeddedPostgres) -> None:
        self.sid = sid
        self.server = server
        self.database = create_database(server, f"shop_{sid}")
        self.network = Proxy(server.port)
        self.added = 0  #: columns so far
        create_tables(self.database)
        fill_tables(self.database)

    @property
    def url(self) -> str:
        """The way through the network."""
        return self.database.url.replace(f":{self.server.port}/", f":{self.network.port}/")


@contextlib.contextmanager
def sources() -> Iterator[list[Town]]:
    """Start two servers with three sources."""
    with contextlib.ExitStack() as stack:
        servers = []
        for version in (18, 16):
            folder = Path(tempfile.mkdtemp(prefix="kuvasz-soak-")) / "data"
            servers.append(stack.enter_context(EmbeddedPostgres(folder, version=version)))
        towns = [Town("eu", servers[0]), Town("ap", servers[0]), Town("us", servers[1])]
        for town in towns:
            stack.callback(town.network.close)
        yield towns


class SteadyLoad(Load):
    """Goes on when its server comes back."""

    def _run(self) -> None:
        while not self._stop.is_set():
            super()._run()
            if isinstance(self.error, psycopg.OperationalError):
                self.error = None
                time.sleep(0.5)
            elif self.error is not None:
                return


class Soak:
    """Sources, kuvasz, and what is done to them.

    Args:
        towns: The sources.
        new_process: Makes kuvasz.
        draw: Decides.
    """

    def __init__(self, towns: list[Town], new_process: Callable[..., Process], draw: random.Random) -> None:
        self.towns = towns
        self.draw = draw
        self.extra: list[str] = []  #: tables that came later
        self.faults: dict[str, int] = {}
        self.process = new_process(self.map(), maintenance=MAINTENANCE)
        document = json.loads(self.process.map.read_text())
        self._document = document | {"server": {"address": "127.0.0.1:0"}}
        self._write_map()
        self.watch = Watch(self)
        self.gentle: tuple[Callable[[], None], ...] = (
            self.cut, self.swallow, self.slow, self.end_walsender, self.restart_server, self.crash_server,
            self.kill_python_worker, self.pause, self.resync, self.add_column, self.drop_column, self.truncate,
        )  # fmt: skip
        self.violent: tuple[Callable[[], None], ...] = (
            self.kill, self.stop, self.kill_jvm, self.add_table, self.remove_table, self.drop_slot,
            self.cut, self.restart_server, self.add_column,
        )  # fmt: skip

    def map(self) -> list[dict[str, Any]]:
        """The map's groups: clones, and what keeps every version, of the same tables."""
        urls = [{"url": town.url, "sid": town.sid} for town in self.towns]
        kinds = {
            "items": {"type": "history", "target": "items_history"},
            "docs": {"type": "append", "target": "docs_log"},
        }
        clones: dict[str, Any] = dict.fromkeys((*TABLES, *self.extra))
        return [
            {"database": "shop", "urls": urls, "on_slot_lost": "resync", "tables": clones},
            {"database": "kinds", "urls": urls, "tables": kinds},
        ]

    def _write_map(self) -> None:
        self.process.map.write_text(json.dumps(self._document | {"databases": self.map()}))

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Change rows of all sources all the time."""
        with contextlib.ExitStack() as stack:
            for town in self.towns:
                stack.enter_context(SteadyLoad(town.database, self.draw.randrange(1 << 30)))
            yield

    # Course

    def run(self, seconds: float) -> None:
        """One fault after another; after each, all is confirmed again before the next one comes."""
        begin = time.monotonic()
        self.process.start()
        self.settle("the first copy")
        for faults, end in ((self.gentle, seconds * 2 / 3), (self.violent, seconds)):
            while time.monotonic() - begin < end:
                for fault in self.draw.sample(faults, len(faults)):
                    if time.monotonic() - begin >= end:
                        break
                    self.suffer(fault)

    def suffer(self, fault: Callable[[], None]) -> None:
        """Do one thing, and wait until it is overcome."""
        name = fault.__name__
        self.faults[name] = self.faults.get(name, 0) + 1
        begin = time.monotonic()
        fault()
        self.settle(name)
        print(f"{time.strftime('%H:%M:%S')} {name}: over after {time.monotonic() - begin:.1f} s", flush=True)

    def settle(self, what: str) -> None:
        """Wait until what is committed now is confirmed to every slot, starting kuvasz again if it ended."""
        wanted = [(town, town.database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
                  for town in self.towns]  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while not all(self._is_confirmed(town, lsn) for town, lsn in wanted):
            assert time.monotonic() < end, f"never over: {what}\n{self.process.report()}"
            if not self.process.is_running:
                self._start_again()
            time.sleep(0.2)

    def _start_again(self) -> None:
        code = self.process.wait()
        assert code not in {2, 3}, f"ended with {code}\n{self.process.report()}"  # a defect of this program
        self.process.start()

    def _is_confirmed(self, town: Town, through: str) -> bool:
        rows = town.database.execute(
            "SELECT count(*) FILTER (WHERE confirmed_flush_lsn >= %s::pg_lsn), count(*) FROM pg_replication_slots"
            " WHERE database = current_database() AND slot_name LIKE 'kuvasz%%' AND NOT temporary", (through,),
        )  # fmt: skip
        return rows[0] == (2, 2)

    def finish(self) -> None:
        """Without load and faults: everything is equal, and nothing is left over."""
        if not self.process.is_running:
            self.process.start()
        self.settle("the end")
        assert self.verb("verify") == 0
        assert self.process.terminate() < 60
        for table, columns in TABLES.items():
            rows = [source_rows(town.database.url, table, sid=town.sid) for town in self.towns]
            expected = sum((one.select((*columns, "sid")) for one in rows[1:]), rows[0].select((*columns, "sid")))
            assert self.process.rows(table).select((*columns, "sid")) == expected, table
        self.assert_history()
        for town in self.towns:
            left = town.database.execute("SELECT slot_name FROM pg_replication_slots"
                                         " WHERE database = current_database() AND slot_name NOT IN"
                                         f" ('kuvasz_shop_{town.sid}', 'kuvasz_kinds_{town.sid}')")  # fmt: skip
            assert not left, left
        self.watch.judge()

    def assert_history(self) -> None:
        """The versions of a key adjoin, and the open ones are the source's rows."""
        rows = self.process.rows("items_history").select(("sid", "id", "kvsz_start", "kvsz_end", "kvsz_deleted"))
        spans: dict[tuple, list[tuple]] = {}
        for (sid, key, start, end, is_deleted), count in rows.rows.items():
            assert count == 1
            spans.setdefault((sid, key), []).append((start, end, is_deleted))
        for identity, versions in spans.items():
            versions.sort()
            for (_, end, _), (start, _, _) in itertools.pairwise(versions):
                assert end <= start, f"versions of {identity} overlap: {versions}"
        last = max(end for versions in spans.values() for _, end, _ in versions)
        are_open = {identity for identity, versions in spans.items() if versions[-1][1] == last}
        there = {(town.sid, key) for town in self.towns for (key,) in town.database.execute("SELECT id FROM items")}
        assert are_open == there, list(are_open ^ there)[:5]

    def verb(self, *arguments: str) -> int:
        """Run a verb beside kuvasz and return its exit code."""
        command = [sys.executable, "-m", "kuvasz", *arguments, "--config", str(self.process.map)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], flush=True)
        return done.returncode

    def any_town(self) -> Town:
        """One of the sources."""
        return self.draw.choice(self.towns)

    # Faults that kuvasz survives

    def cut(self) -> None:
        for _ in range(3):
            self.any_town().network.cut()
            time.sleep(self.draw.uniform(0, 1))

    def swallow(self) -> None:
        network = self.any_town().network
        network.is_swallowing = True
        time.sleep(5)
        network.is_swallowing = False
        network.cut()  # what was swallowed is missing in the streams

    def slow(self) -> None:
        network = self.any_town().network
        network.delay_s = 0.05
        time.sleep(10)
        network.delay_s = 0.0

    def end_walsender(self) -> None:
        self.any_town().database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                                         " WHERE database = current_database() AND active")  # fmt: skip

    def restart_server(self) -> None:
        self.any_town().server.restart("fast")

    def crash_server(self) -> None:
        self.any_town().server.restart("immediate")

    def kill_python_worker(self) -> None:
        workers = [helper for helper in self.process.helpers() if helper.name() != "java"]
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            self.draw.choice(workers).kill()

    def pause(self) -> None:
        town = self.any_town()
        table = ("--table", "shop.items", "--sid", town.sid)
        if self.verb("pause", *table) == 0:
            time.sleep(3)
            assert self.verb("resume", *table) == 0

    def resync(self) -> None:
        self.verb("resync", "--table", "shop.docs", "--sid", self.any_town().sid)

    def add_column(self) -> None:
        town = self.any_town()
        town.added += 1
        default = self.draw.choice(("", f" DEFAULT {town.added}"))
        town.database.execute(f"ALTER TABLE items ADD COLUMN added_{town.added} int{default}")

    def drop_column(self) -> None:
        town = self.any_town()
        if town.added:
            town.database.execute(f"ALTER TABLE items DROP COLUMN IF EXISTS added_{town.added}")

    def truncate(self) -> None:
        self.any_town().database.execute("TRUNCATE docs")

    # Faults that end it

    def kill(self) -> None:
        helpers = self.process.helpers()
        self.process.begin_kill()
        self.process.wait()
        self.process.wait_helpers(helpers)

    def stop(self) -> None:
        if self.process.is_running:
            assert self.process.terminate() < 60

    def kill_jvm(self) -> None:
        for helper in self.process.helpers():
            if helper.name() == "java":
                helper.kill()
        self.process.wait()

    def add_table(self) -> None:
        name = f"extra_{len(self.extra)}"
        for town in self.towns:
            town.database.execute(f"CREATE TABLE IF NOT EXISTS {name} (id bigint PRIMARY KEY, n int)")
            town.database.execute(f"INSERT INTO {name} SELECT i, i FROM generate_series(1, 500) i"
                                  " ON CONFLICT DO NOTHING")  # fmt: skip
        self.extra.append(name)
        self._start_anew()

    def remove_table(self) -> None:
        if self.extra:
            self.extra.pop()
            self._start_anew()

    def _start_anew(self) -> None:
        self.stop()
        self._write_map()

    def drop_slot(self) -> None:
        town = self.any_town()
        self.stop()
        town.database.execute(f"SELECT pg_drop_replication_slot('kuvasz_shop_{town.sid}')")
        self.process.start()
        # The slot that is made anew begins later; until then there is one less, and `settle` waits.


class Watch:
    """Looks at everything that might grow, every few seconds."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self.samples: list[dict[str, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._begin = time.monotonic()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            with contextlib.suppress(psutil.Error, psycopg.Error, OSError):
                self.samples.append(self._look())

    def _look(self) -> dict[str, float]:
        process = self._soak.process
        driver = psutil.Process(process.pid)
        helpers = process.helpers()
        sample = {
            "at": time.monotonic() - self._begin,
            "pid": driver.pid,
            "driver MB": driver.memory_info().rss / 1e6,
            "JVM MB": sum(one.memory_info().rss for one in helpers if one.name() == "java") / 1e6,
            "workers MB": sum(one.memory_info().rss for one in helpers if one.name() != "java") / 1e6,
            "files open": driver.num_fds(),
            "threads": driver.num_threads(),
            "retained MB": 0.0,
            "connections": 0.0,
            "lake files": sum(len(names) for _, _, names in os.walk(process.folder / "wh")),
            "state files": sum(len(names) for _, _, names in os.walk(process.folder / "state")),
        }
        for town in self._soak.towns:
            ((retained, connections),) = town.database.execute(
                "SELECT (SELECT max(pg_current_wal_lsn() - restart_lsn) FROM pg_replication_slots"
                " WHERE database = current_database()), (SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE '%kuvasz%')"
            )
            sample["retained MB"] = max(sample["retained MB"], float(retained or 0) / 1e6)
            sample["connections"] += connections
        return sample

    def judge(self) -> None:
        """Nothing grows while one process lives: its last quarter of an hour is as its second one."""
        longest = max({sample["pid"] for sample in self.samples}, key=lambda pid: len(self._of(pid)))
        life = self._of(longest)
        quarter = max(1, len(life) // 4)
        for name, most in (("driver MB", 1.25), ("workers MB", 1.4), ("JVM MB", 1.4), ("files open", 1.3),
                           ("threads", 1.3), ("connections", 1.5), ("state files", 2.0)):  # fmt: skip
            before = sorted(sample[name] for sample in life[quarter : 2 * quarter])
            after = sorted(sample[name] for sample in life[-quarter:])
            first, last = before[len(before) // 2], after[len(after) // 2]
            print(f"{name:12} {first:10.1f} -> {last:10.1f}", flush=True)
            assert last <= most * first + 5, f"{name} grew from {first} to {last}"

    def _of(self, pid: float) -> list[dict[str, float]]:
        return [sample for sample in self.samples if sample["pid"] == pid]

    def save(self, seed: int) -> None:
        """Write samples and picture."""
        OUT.mkdir(parents=True, exist_ok=True)
        found = {"seed": seed, "faults": self._soak.faults, "samples": self.samples}
        (OUT / "soak.json").write_text(json.dumps(found))
        minutes = [sample["at"] / 60 for sample in self.samples]

        def panel(title: str, y: str, *names: str) -> Panel:
            series = {name: (minutes, [sample[name] for sample in self.samples]) for name in names}
            return Panel(title=title, look=Look.LINES, x="minutes", y=y, series=series)

        panels = (
            panel("resident memory", "MB", "driver MB", "JVM MB", "workers MB"),
            panel("files and threads of the driver", "number", "files open", "threads", "connections"),
            panel("WAL that a slot retains at most", "MB", "retained MB"),
            panel("files", "number", "lake files", "state files"),
        )
        plots.draw(panels, f"soak, seed {seed}", OUT / "soak.png")
