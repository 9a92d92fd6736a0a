"""Measures what `consistency: group` costs or saves: all tables in one commit, or each in one of its own.

    python -m benchmarks.micro_group [--tables 2 10 100] [--rounds 20] [--catalogs sqlite rest] [--delay 0 20]

In one lake there is every table twice: in a group, and alone. A mini-transaction changes two rows in each table; the
two ways take turns, so that whatever else the machine does meets both. The time is that of the commit, for the rows
are written before it in the same way; CPU is that of driver, JVM and workers, writing included. The REST catalog is a
process of its own that answers a number of milliseconds (`--delay`) later than it could; its CPU does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from typing_extensions import override

from kuvasz.config.load import load
from kuvasz.lake.jvm import spark
from tests.support.changes import ITEMS, Sender, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.rest_catalog import RestServer
from tests.support.worlds import QUIET, IcebergWorld

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.ports import TableWork

#: Before a measurement; the first commits of a table are slower.
_WARM = 3


class RestProcess:
    """A REST catalog in a process of its own.

    Args:
        warehouse: Its folder.
        delay_s: By how much each answer is late.
    """

    def __init__(self, warehouse: Path, delay_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(warehouse, delay_s, theirs), daemon=True)
        self._process.start()
        self.uri: str = self._ours.recv()
        self.pid = self._process.pid

    def requests(self) -> int:
        """How many there were."""
        self._ours.send(None)
        return int(self._ours.recv())

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.join()


def _serve(warehouse: Path, delay_s: float, pipe: Connection) -> None:
    server = RestServer(warehouse, delay_s=delay_s)
    pipe.send(server.uri)
    while True:
        pipe.recv()
        pipe.send(server.requests.total())


class Folder(LakeFolder):
    """A lake whose catalog is SQLite, or behind REST.

    Args:
        session: Spark.
        delay_s: Of the REST catalog; None: it is SQLite.
    """

    def __init__(self, session: SparkSession, delay_s: float | None) -> None:
        super().__init__(session)
        self.server = None if delay_s is None else RestProcess(self.folder / "wh", delay_s)

    @override
    def config(
        self,
        databases: list[dict],
        maintenance: Mapping[str, object] | None = None,
        lake: Mapping[str, object] | None = None,
        **pipeline: Any,
    ) -> Config:
        section = {} if self.server is None else {"type": "rest", "uri": self.server.uri}
        return super().config(databases, maintenance, section, **pipeline)

    @override
    def remove(self) -> None:
        if self.server is not None:
            self.server.close()
        super().remove()


class Way:
    """One way to commit the same tables.

    Args:
        world: The lake.
        name: Of the way: a part of its tables' names.
        tables: How many.
        group: Theirs; None: each is committed by itself.
    """

    def __init__(self, world: IcebergWorld, name: str, tables: int, group: str | None) -> None:
        self._world = world
        self._names = [f"shop.{name}_{number}" for number in range(tables)]
        self._sender = Sender()
        self._key = 1
        self.seconds: list[float] = []
        self.cpu: list[float] = []
        self.requests: list[int] = []
        for table in self._names:
            world.lake.prepare(dataclasses.replace(target(table), group=group), feed("eu", table), ITEMS)
            world.copy("eu", (1, 1, "b"), name=table)

    def works(self) -> list[TableWork]:
        """A transaction that changes two rows in each table."""
        lsn = self._sender.commit_lsn()
        self._key += 1
        messages = [update(1, self._key), insert(self._key)]
        return [work(self._sender.segment([(lsn, messages)]), target=table) for table in self._names]

    def run(self, server: RestProcess | None) -> None:
        """Write and commit a transaction, and note what that took."""
        works, before = self.works(), _cpu(server)
        written = self._world.lake.write(works)
        asked = 0 if server is None else server.requests()
        begin = time.perf_counter()
        self._world.commit(written)
        self.seconds.append(time.perf_counter() - begin)
        self.cpu.append(_cpu(server) - before)
        self.requests.append(0 if server is None else server.requests() - asked)


def _cpu(server: RestProcess | None) -> float:
    """Return the CPU seconds of this process and of those it started, but for the catalog's."""
    total = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        if server is None or process.pid != server.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
    return total


def measure(session: SparkSession, what: str, delay_s: float | None, tables: int, rounds: int) -> str:
    """Return the line of so many tables in a catalog."""
    folder = Folder(session, delay_s)
    try:
        world = IcebergWorld(folder, QUIET)
        ways = [Way(world, "alone", tables, None), Way(world, "joint", tables, "shop")]
        for number in range(_WARM + rounds):
            for way in ways if number % 2 else ways[::-1]:
                way.run(folder.server)
        world.lake.close()
    finally:
        folder.remove()
    alone, joint = ways
    return (
        f"{what:>12} {tables:>4} tables: commit {_ms(alone.seconds)} ms alone, {_ms(joint.seconds)} ms together, "
        f"ratio {_ratio(joint.seconds, alone.seconds)}; CPU {_ms(alone.cpu)} and {_ms(joint.cpu)} ms, "
        f"ratio {_ratio(joint.cpu, alone.cpu)}"
        + (
            f"; requests {_median(alone.requests):.0f} and {_median(joint.requests):.0f}"
            if delay_s is not None
            else ""
        )
    )


def _median(values: list[float] | list[int]) -> float:
    return statistics.median(values[_WARM:])


def _ms(values: list[float]) -> str:
    return f"{_median(values) * 1e3:,.0f}"


def _ratio(joint: list[float], alone: list[float]) -> str:
    """Return the median of the turns' ratios, and the quarters around it."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(joint, alone, strict=True)][_WARM:], n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _catalogs(names: list[str], delays: list[float]) -> Iterator[tuple[str, float | None]]:
    for name in names:
        if name == "rest":
            yield from ((f"rest {delay:.0f} ms", delay / 1e3) for delay in delays)
        else:
            yield name, None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, nargs="+", default=[2, 10, 100])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--catalogs", nargs="+", choices=["sqlite", "rest"], default=["sqlite", "rest"])
    parser.add_argument("--delay", type=float, nargs="+", default=[0, 20], help="of the REST catalog, in ms")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kuvasz-group-") as folder:
        file = Path(folder, "map.yaml")
        one = {"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": {}}}
        lake = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/wh"}
        file.write_text(json.dumps({"lake": lake, "spark": {"master": "local[2]"}, "databases": [one]}))
        session = spark.open_session(load(file, {}).config)
        try:
            for name, delay_s in _catalogs(chosen.catalogs, chosen.delay):
                for tables in chosen.tables:
                    print(measure(session, name, delay_s, tables, chosen.rounds), flush=True)
        finally:
            session.stop()


if __name__ == "__main__":
    main()
