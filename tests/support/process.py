"""kuvasz as a user runs it: a process of its own with a map, a lake and a state folder; killed without mercy."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil
import pytest
from pyiceberg.table import Table

from kuvasz import cli
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.notes import PARKED_PREFIX
from kuvasz.model import SourcePosition
from tests.support import oracle, scratch
from tests.support.postgres import Database
from tests.support.waiting import wait_until

#: A start of Spark on a busy machine, and then some.
START_PATIENCE_S = 240.0

#: kuvasz, without the facts that `tests.support.mutations` leaves out of this process.
KUVASZ = [sys.executable, "-m", "tests.support.mutations" if os.environ.get("MUTATION") else "kuvasz"]


class Process:
    """One folder with a map, a lake and a state folder, and at most one running kuvasz.

    Args:
        databases: The map's groups.
        lake: Options of the section ``lake`` that differ.
        pipeline: Options of the section ``pipeline`` that differ.
        maintenance: Options of the section ``maintenance`` that differ.
        address: Where it listens; by default nowhere.
        cluster: The section ``cluster``.
        lake_of: Another process, whose lake it has as well.
        folder: The folder, if it is there; it goes with the process.
    """

    def __init__(
        self,
        databases: Sequence[Mapping[str, object]],
        *,
        lake: Mapping[str, object] | None = None,
        pipeline: Mapping[str, object] | None = None,
        maintenance: Mapping[str, object] | None = None,
        address: str | None = None,
        cluster: Mapping[str, object] | None = None,
        lake_of: Process | None = None,
        folder: Path | None = None,
    ) -> None:
        self.folder = folder or scratch.new_folder("kuvasz-process-")
        self.map = self.folder / "map.yaml"
        self._lake = lake or {}
        self._pipeline = pipeline or {}
        self._maintenance = maintenance or {}
        self._address = address
        self._cluster = cluster or {}
        self._lake_folder = self.folder if lake_of is None else lake_of.folder
        self.write_map(databases)
        self.events: list[dict] = []  #: of the running, or last, process
        self.output: list[str] = []  #: lines that are no events
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()

    @property
    def pyiceberg(self) -> dict[str, str]:
        """Properties of the catalog for PyIceberg."""
        folder = self._lake_folder
        return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}

    def write_map(self, databases: Sequence[Mapping[str, object]]) -> None:
        """Replace the map; the next start reads it."""
        document = {
            "lake": {
                "uri": f"jdbc:sqlite:{self._lake_folder}/catalog.db",
                "warehouse": str(self._lake_folder / "wh"),
                "namespace": "shop",
                **self._lake,
            },
            "spark": {"master": "local[2]"},
            "pipeline": {"state": str(self.folder / "state"), "commit_interval": "50ms", **self._pipeline},
            "maintenance": self._maintenance,
            "server": {"address": self._address},
            "cluster": self._cluster,
            "databases": list(databases),
        }
        self.map.write_text(json.dumps(document))

    # Life

    def start(self, *arguments: str, failpoints: str = "", environment: Mapping[str, str] | None = None) -> Self:
        """Start kuvasz."""
        assert not self.is_running
        self.events, self.output = [], []
        surroundings = {**os.environ, "KUVASZ_FAILPOINTS": failpoints, **(environment or {})}
        self._process = subprocess.Popen(
            [*KUVASZ, "--config", str(self.map), "--log", "json", "--log-level", "debug", *arguments],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, env=surroundings,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        events, output = self.events, self.output
        assert process.stderr is not None
        for line in process.stderr:
            try:
                event = json.loads(line)
                events.append(event) if isinstance(event, dict) else output.append(line.rstrip())
            except ValueError:
                output.append(line.rstrip())

    def _started(self) -> subprocess.Popen[str]:
        """The running, or last, process."""
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        """Of the running, or last, process."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def wait(self, patience_s: float = START_PATIENCE_S) -> int:
        """Wait for the end and return the exit code: the signal's number negated if one killed it."""
        try:
            code = self._started().wait(patience_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"kuvasz did not end:\n{self.report()}")
        # The JVM holds the other end of the pipe for a moment longer.
        self._reader.join(20)
        return code

    def terminate(self) -> float:
        """Send SIGTERM, wait for a clean end and return the seconds it took."""
        begin = time.monotonic()
        self._started().terminate()
        code = self.wait(60)
        assert code == 0, self.report()
        return time.monotonic() - begin

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command with the same map, to its end: a verb, beside the process or while there is none."""
        command = [*KUVASZ, "--config", str(self.map), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=START_PATIENCE_S, check=False)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the JVM is gone, too."""
        helpers = self.helpers()
        self.begin_kill()
        assert self.wait() == -signal.SIGKILL, self.report()
        self.wait_helpers(helpers)

    def begin_stop(self) -> None:
        """Send SIGTERM."""
        self._started().terminate()

    def begin_kill(self) -> None:
        """Send SIGKILL; the JVM ends a moment later."""
        self._started().kill()

    def helpers(self) -> list[psutil.Process]:
        """The JVM and the Python workers."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def wait_killed(self) -> None:
        """Wait until a failpoint has killed the process and its JVM is gone."""
        helpers = Helpers(self)
        end = time.monotonic() + START_PATIENCE_S
        while self.is_running:
            assert time.monotonic() < end, f"no failpoint was reached:\n{self.report()}"
            helpers.look()
            time.sleep(0.05)
        assert self.wait() == -signal.SIGKILL, self.report()
        helpers.wait()

    @staticmethod
    def wait_helpers(helpers: Sequence[psutil.Process]) -> None:
        """Wait until processes are gone: what the JVM had begun to commit is then there or never will be."""
        _, alive = psutil.wait_procs(helpers, timeout=30)
        assert not alive, f"left behind: {alive}"

    def remove(self) -> None:
        """End everything and delete the folder."""
        if self.is_running:
            helpers = self.helpers()
            self._started().kill()
            self._started().wait()
            psutil.wait_procs(helpers, timeout=10)
        shutil.rmtree(self.folder, ignore_errors=True)

    # Events

    def found(self, event: str, **facts: object) -> list[dict]:
        """Events of the running process with these facts."""
        return [
            entry for entry in list(self.events)
            if entry.get("event") == event and all(entry.get(name) == value for name, value in facts.items())
        ]  # fmt: skip

    def wait_event(self, event: str, count: int = 1, **facts: object) -> dict:
        """Wait until an event has come `count` times, and return the last of them."""
        self.wait_until(lambda: len(self.found(event, **facts)) >= count, f"{count} x {event} {facts}")
        return self.found(event, **facts)[-1]

    def wait_until(self, condition: Callable[[], object], what: str, patience_s: float = START_PATIENCE_S) -> None:
        """Wait for a condition while the process lives."""

        def holds() -> bool:
            if condition():
                return True
            assert self.is_running, f"kuvasz ended before: {what}\n{self.report()}"
            return False

        wait_until(holds, lambda: f"{what}\n{self.report()}", patience_s)

    def report(self) -> str:
        """What the process told, for failures: of the commits only the last."""
        telling = [event for event in self.events if event.get("level") != "debug"]
        shown = [*telling[-40:], *self.found("committed")[-4:]]
        return "\n".join([*(json.dumps(event)[:800] for event in shown), *self.output[-25:]])

    # Sources

    def wait_confirmed(self, *databases: Database) -> None:
        """Wait until everything the databases have committed so far is durable in the lake and confirmed to them."""
        for database in databases:
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            is_confirmed = functools.partial(confirmed, database, now)
            self.wait_until(is_confirmed, f"{database.url} is confirmed to {now}")
        self.wait_until(lambda: not self.parked(), "nothing is parked")

    def parked(self) -> list[Path]:
        """The parking logs: changes that are confirmed and not in the lake."""
        return list((self.folder / "state" / "parked").rglob("*.log"))

    # Lake

    def rows(self, target: str) -> oracle.Rows:
        """A table's rows as PyIceberg reads them."""
        return oracle.lake_rows_pyiceberg(self.pyiceberg, f"shop.{target}")

    def rows_seen(self, target: str) -> oracle.Rows:
        """The same, read again only once the table's metadata is another: for what is waited for."""
        return oracle.lake_rows_seen(self.pyiceberg, f"shop.{target}")

    def positions(self, target: str) -> dict[str, SourcePosition]:
        """How far each source is in a table, by the lake alone."""
        return source_positions.parse(self._table(target).properties, target)

    def is_parked(self, target: str, source: str) -> bool:
        """Whether a table lacks changes of a source that are parked, by the lake alone."""
        return PARKED_PREFIX + source in self._table(target).properties

    def snapshots(self, target: str) -> int:
        """The number of commits that changed rows of a table."""
        return len(self._table(target).metadata.snapshots)

    def _table(self, target: str) -> Table:
        return oracle.open_table(self.pyiceberg, f"shop.{target}")

    def assert_equal(self, target: str, *sources: oracle.Rows, key: tuple[str, ...] = ("id",)) -> None:
        """A table, read by PyIceberg and DuckDB, holds the rows of the sources."""
        expected = sources[0]
        for more in sources[1:]:
            expected = expected + more
        oracle.assert_equal(expected, self.rows(target), key=key)
        oracle.assert_equal(expected, oracle.lake_rows_duckdb(self.pyiceberg, f"shop.{target}"), key=key)


class Helpers:
    """The JVM and the Python workers of a process whose end is waited for.

    Looked for now and then only: a look reads about every process there is.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._found: dict[int, psutil.Process] = {}
        self._next = 0.0

    def look(self) -> None:
        """Look who is there, if it is time to."""
        if time.monotonic() >= self._next:
            self._found |= {helper.pid: helper for helper in self._process.helpers()}
            self._next = time.monotonic() + 0.5

    def wait(self) -> None:
        """Wait until all that were ever seen are gone."""
        self._process.wait_helpers(list(self._found.values()))


def confirmed(database: Database, through: str) -> bool:
    """Whether kuvasz's slot of a database is confirmed up to an LSN."""
    statement = (
        "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots"
        " WHERE database = current_database() AND slot_name LIKE 'kuvasz%%' AND NOT temporary"
    )
    return bool(database.execute(statement, (through,))[0][0])


def tell(process: Process, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a verb while nothing runs."""
    map_ = json.loads(process.map.read_text())
    process.map.write_text(json.dumps(map_ | {"server": {"address": "127.0.0.1:0"}}))
    try:
        with contextlib.suppress(SystemExit):
            cli.main([*arguments, "--config", str(process.map)])
    finally:
        process.map.write_text(json.dumps(map_))
    return capsys.readouterr().out
