"""kuvasz as a process under measurement, and its lake seen from outside.

What became visible when is not taken from kuvasz's own word: the catalog's SQLite file is watched for new table
metadata, and the position of the source is read from the table properties there.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psutil
import psycopg
from pyiceberg.catalog import load_catalog

from benchmarks import workload
from kuvasz import lsn
from kuvasz.demo.fingerprint import Fingerprint, duckdb_query, postgres_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMESPACE = "bench"

#: What is measured.
COMMAND = (sys.executable, "-m", "kuvasz")

_MAP = """\
lake:
  uri: jdbc:sqlite:{folder}/lake/catalog.db
  warehouse: {folder}/lake/warehouse
  namespace: {namespace}
server: {{address: "127.0.0.1:{port}"}}
databases:
- database: bench
  urls:
  - {{url: "{url}"}}
  tables:
{tables}
"""


class Subject:
    """One lake, one source; kuvasz is run on them several times.

    Args:
        folder: For map, lake and logs; kuvasz runs in it.
        url: The source.
        tables: Tables of the workload.
    """

    def __init__(self, folder: Path, url: str, tables: list[str]) -> None:
        self.folder = folder
        self.url = url
        self.tables = tables
        (folder / "lake").mkdir(parents=True, exist_ok=True)
        self.map = folder / "map.yaml"
        lines = "\n".join(f"    {table}:" for table in tables)
        port = _free_port()
        text = _MAP.format(folder=folder.absolute(), namespace=NAMESPACE, port=port, url=url, tables=lines)
        self.map.write_text(text)

    def start(self, *options: str) -> Run:
        """Start kuvasz on the map."""
        return Run(self.folder, self.map, options)

    def watch(self) -> Watch:
        """Watch the first table's position from now on."""
        return Watch(self.folder / "lake" / "catalog.db", self.tables[0])

    def differences(self) -> list[str]:
        """Compare every table by content; empty where the lake holds what the source does."""
        found = []
        for table in self.tables:
            source, lake = self._source(table), self._lake(table)
            if source != lake:
                found.append(f"{table}: source {source}, lake {lake}")
        return found

    def _source(self, table: str) -> Fingerprint:
        with psycopg.connect(self.url) as connection:
            [(rows, total)] = connection.execute(postgres_query(table, workload.FIELDS)).fetchall()
        return Fingerprint(rows=int(rows), total=int(total))

    def _lake(self, table: str) -> Fingerprint:
        catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{self.folder}/lake/catalog.db")
        reader = catalog.load_table(f"{NAMESPACE}.{table}").scan().to_arrow_batch_reader()
        with duckdb.connect() as connection:
            connection.register("lake", reader)
            [(rows, total)] = connection.execute(duckdb_query("lake", workload.FIELDS)).fetchall()
        return Fingerprint(rows=int(rows), total=int(total))


class Run:
    """A running kuvasz: its events as they come, the CPU of all its processes, its end."""

    def __init__(self, folder: Path, map_file: Path, options: tuple[str, ...]) -> None:
        self.log = folder / "kuvasz.log"
        self.events: list[dict[str, Any]] = []
        self.started_at = time.time()
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [*COMMAND, "--config", str(map_file), "--log", "json", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
        )
        self._reader = threading.Thread(target=self._read, name="kuvasz-log", daemon=True)
        self._reader.start()

    def wait_for(self, name: str, *, timeout_s: float, after: int = 0) -> dict[str, Any]:
        """Return the first event of a name, or of ``<part>.<name>``, from number `after` on.

        Raises:
            RuntimeError: kuvasz ended, or the time is over.
        """
        end_at = time.monotonic() + timeout_s
        with self._news:
            while True:
                for event in self.events[after:]:
                    if str(event.get("event")).rpartition(".")[2] == name:
                        return event
                self.check()
                if time.monotonic() > end_at:
                    raise RuntimeError(f"kuvasz did not say {name!r} within {timeout_s:.0f} s\n{self.tail()}")
                self._news.wait(0.2)

    def check(self) -> None:
        """Raise RuntimeError if kuvasz has ended and all it said has been read."""
        if self._process.poll() is not None and not self._reader.is_alive():
            raise RuntimeError(f"kuvasz ended with {self._process.returncode}\n{self.tail()}")

    def end(self) -> None:
        """Ask kuvasz to stop and wait for it.

        Raises:
            RuntimeError: It did not end with 0.
        """
        self._process.send_signal(signal.SIGTERM)
        self.wait(60)

    def wait(self, timeout_s: float) -> None:
        """Wait for kuvasz to end by itself.

        Raises:
            RuntimeError: It did not end in time, or not with 0.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"kuvasz did not end within {timeout_s:.0f} s\n{self.tail()}") from None
        self._reader.join(5)
        if code != 0:
            raise RuntimeError(f"kuvasz ended with {code}\n{self.tail()}")

    def cpu(self) -> Mapping[str, float]:
        """Return the CPU seconds used so far, by kind of process: driver, jvm, workers."""
        used = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        driver = psutil.Process(self._process.pid)
        for process in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                kind = "driver" if process.pid == driver.pid else "jvm" if "java" in process.name() else "workers"
                used[kind] += times.user + times.system
        return used

    def memory(self) -> int:
        """Return the resident memory of all its processes in bytes."""
        driver = psutil.Process(self._process.pid)
        total = 0
        for process in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def tail(self) -> str:
        """Return the end of what kuvasz said."""
        return self.log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self.log.open("ab") as log:
            for line in self._process.stderr:
                log.write(line)
                log.flush()
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        with self._news:
                            self.events.append({"seen_at": time.time(), **event})
                            self._news.notify_all()


class Watch:
    """Notes when which position of the source became visible in a table; a context manager."""

    def __init__(self, catalog: Path, table: str) -> None:
        self.seen: list[tuple[float, int]] = []  #: (epoch seconds, position) in the order they appeared
        self._catalog = catalog
        self._table = table
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lake-watch", daemon=True)

    def visible_at(self, position: int) -> float | None:
        """Return when the table's position had passed `position`."""
        return next((at for at, seen in self.seen if seen > position), None)

    def wait_for(self, position: int, *, timeout_s: float, is_alive: Callable[[], None]) -> float:
        """Wait until the table's position has passed `position` and return when that was seen.

        Raises:
            RuntimeError: The time is over.
        """
        end_at = time.monotonic() + timeout_s
        with self._news:
            while (at := self.visible_at(position)) is None:
                is_alive()
                if time.monotonic() > end_at:
                    last = lsn.render(self.seen[-1][1]) if self.seen else "nothing"
                    raise RuntimeError(f"{lsn.render(position)} not visible after {timeout_s:.0f} s; last {last}")
                self._news.wait(0.2)
        return at

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = None
        while not self._stop.wait(0.01):
            location = self._location()
            if location is None or location == before:
                continue
            at, before = time.time(), location
            position = _position(location)
            if position is not None:
                with self._news:
                    self.seen.append((at, position))
                    self._news.notify_all()

    def _location(self) -> str | None:
        if not self._catalog.exists():
            return None
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        with contextlib.suppress(sqlite3.OperationalError):  # locked or not yet created: asked again in 10 ms
            connection = sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True, timeout=1)
            try:
                row = connection.execute(query, (self._table,)).fetchone()
                return None if row is None else str(row[0])
            finally:
                connection.close()
        return None


def _position(location: str) -> int | None:
    """Return the source's position in a table's metadata file; the smallest where there are several sources."""
    content = Path(location.removeprefix("file://").removeprefix("file:")).read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    properties = json.loads(content)["properties"]
    found = [json.loads(text)["lsn"] for name, text in properties.items() if name.startswith("kuvasz.position.")]
    return min((lsn.parse(place) if isinstance(place, str) else int(place) for place in found), default=None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
