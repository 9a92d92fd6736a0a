"""What hours of small commits do to a table, with maintenance and without.

    python -m benchmarks.maintenance [--commits 3000] [--rows 200000] [--changes 200] [--out benchmarks/out]

Commits mini-transactions of uniform updates to two real Iceberg tables as fast as they go; one of them is maintained,
beside its commits as in a running kuvasz. Both get the same changes in turn, so that a busy machine is busy for both.
Every tenth of the way it shows files, files with deletes, snapshots, manifests, size of the metadata file, files in
the table's folder, bytes of the position index, the time of a commit since the last line (waiting for maintenance
included), and the seconds of a full scan by Spark. A look of maintenance comes every sixty commits: as many as one a
second would be in a minute. Seconds mean nothing by themselves; compare the two tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import logging
import random
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import plots
from benchmarks.outcome import Look, Panel
from kuvasz.config.load import load
from kuvasz.lake.iceberg.engine import spool_folder
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.model import SourcePosition
from kuvasz.ports import Receipt
from kuvasz.state.store import state_of
from tests.support import oracle
from tests.support.changes import ITEMS, Sender, feed, insert, target, update, work

_COMMITS_PER_LOOK = 60

#: Spark's part is not what is measured here: one job writes the files of so many commits.
_COMMITS_PER_JOB = 10
_ARMS = {"without": "shop.plain", "with": "shop.items"}

#: Figure of a line -> its unit, as printed.
_COLUMNS = {
    "files": "", "deletes": "", "snapshots": "", "manifests": "", "metadata": "kB", "stored": "files", "index": "MB",
    "p50": "ms", "p95": "ms", "max": "ms", "scan": "s",
}  # fmt: skip


class Subject:
    """A lake with a table for each arm."""

    def __init__(self, folder: Path, rows: int, target_size: str) -> None:
        self.folder = folder
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/wh"}
        document = {
            "lake": {"uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": str(folder / "wh"), "namespace": "shop"},
            "pipeline": {"state": str(folder / "state")},
            "maintenance": {"interval": "1d", "snapshot_age": "30s", "target_file_size": target_size},
            "server": {"address": None},
            "databases": [{"database": "x", "urls": [{"url": "postgresql:///x"}], "tables": {"items": None}}],
        }
        (folder / "map.yaml").write_text(json.dumps(document))
        self.config = load(folder / "map.yaml", {}).config
        self.lake = IcebergLake(self.config, state_of(self.config).witness)
        self.lake.open()
        self.rows = rows
        self.senders = {name: Sender() for name in _ARMS.values()}
        self.random = random.Random(1)
        for name in _ARMS.values():
            self.lake.prepare(target(name), feed(name=name), ITEMS)
            self.lake.copy(feed(name=name), ITEMS, [], SourcePosition(lsn=1000), lambda *_: None)
        self._commit([[insert(key, 0, f"a text of no great length {key}") for key in range(rows)]])
        self._look = threading.Thread()

    def _commit(self, transactions: list[list[bytes]]) -> list[dict[str, float]]:
        """Write for both tables in one job, commit one after the other; seconds by table of each transaction."""
        works = [
            work(sender.one(*messages), target=name)
            for messages in transactions
            for name, sender in self.senders.items()
        ]
        written = self.lake.write(works)
        spent = []
        for first in range(0, len(written.tables), len(self.senders)):
            pair = written.tables[first : first + len(self.senders)]
            seconds = {}
            for job in self.random.sample(pair, len(pair)):
                begin = time.perf_counter()
                (outcome,) = self.lake.commit(dataclasses.replace(written, tables=(job,)))
                assert isinstance(outcome, Receipt), outcome
                seconds[job.work.target] = time.perf_counter() - begin
            spent.append(seconds)
        return spent

    def commit(self, commits: int, changes: int) -> list[dict[str, float]]:
        transactions = []
        for _ in range(commits):
            keys = self.random.sample(range(self.rows), changes)
            messages = [update(key, key, "another text of that length") for key in keys]
            transactions.append([*messages, insert(self.rows, 0, "new")])
            self.rows += 1
        return self._commit(transactions)

    def look(self) -> None:
        """Let maintenance look at its table, beside the commits; the look before has ended."""
        self.join()
        maintainer = self.lake.maintenance.maintainer
        assert maintainer is not None
        self._look = threading.Thread(target=maintainer._visit, args=(self.lake.table(_ARMS["with"]),))
        self._look.start()

    def join(self) -> None:
        """Wait for the look that is on its way."""
        if self._look.ident is not None:
            self._look.join()

    def line(self, name: str, seconds: list[float]) -> dict[str, float]:
        """Return the figures of one table."""
        table = oracle.open_table(self.properties, name)
        begin = time.perf_counter()
        found = self.lake.engine.session.sql(f"SELECT count(*), sum(length(body)) FROM kuvasz.{name}").collect()[0][0]
        scan = time.perf_counter() - begin
        assert found == self.rows, (found, self.rows)
        tasks = list(table.scan().plan_files())
        place = Path(urllib.parse.urlparse(table.location()).path)
        index = self.lake.table(name).index.folder
        p50, p95, most = np.percentile(seconds, (50, 95, 100)) * 1000
        return {
            "files": len(tasks),
            "deletes": sum(1 for task in tasks if task.delete_files),
            "snapshots": len(table.metadata.snapshots),
            "manifests": len(table.current_snapshot().manifests(table.io)),
            "metadata": Path(urllib.parse.urlparse(table.metadata_location).path).stat().st_size / 1024,
            "stored": sum(1 for path in place.rglob("*") if path.is_file() and not path.name.endswith(".crc")),
            "index": sum(path.stat().st_size for path in index.rglob("*") if path.is_file()) / 1e6,
            "p50": p50, "p95": p95, "max": most, "scan": scan,
        }  # fmt: skip

    def memory(self) -> dict[str, float]:
        """Return MB of the driver's process, and of live objects in the JVM."""
        gc.collect()
        jvm: Any = self.lake.engine.session._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        return {
            "driver": psutil.Process().memory_info().rss / 1e6,
            "jvm": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
            "spool": sum(1 for path in Path(spool_folder(self.config)).rglob("*") if path.is_file()),
        }


def run(commits: int, rows: int, changes: int, target_size: str, out: Path) -> dict[str, list[dict[str, float]]]:
    """Return the lines of each arm, and under `process` what both share; they are in a file from line to line."""
    print(f"{changes} of {rows} rows a commit")
    print("         commits" + "".join(f"{name:>10}" for name in _COLUMNS))
    lines: dict[str, list[dict[str, float]]] = {**{arm: [] for arm in _ARMS}, "process": []}
    with tempfile.TemporaryDirectory(prefix="kuvasz-bench-") as folder:
        subject = Subject(Path(folder), rows, target_size)
        seconds: dict[str, list[float]] = {name: [] for name in _ARMS.values()}
        for number in range(_COMMITS_PER_JOB, commits + 1, _COMMITS_PER_JOB):
            for spent in subject.commit(_COMMITS_PER_JOB, changes):
                for name, value in spent.items():
                    seconds[name].append(value)
            if number % _COMMITS_PER_LOOK == 0:
                subject.look()
            if number % max(_COMMITS_PER_JOB, commits // 10) == 0:
                subject.join()
                for arm, name in _ARMS.items():
                    lines[arm].append({"commits": number, **subject.line(name, seconds[name])})
                    print(_printed(arm, lines[arm][-1]), flush=True)
                    seconds[name] = []
                lines["process"].append({"commits": number, **subject.memory()})
                (out / "maintenance.json").write_text(json.dumps(lines, indent=1))
                print("process " + json.dumps({k: round(v) for k, v in lines["process"][-1].items()}), flush=True)
        subject.join()
        subject.look()
        subject.join()
        upkeep = subject.lake.maintenance.upkeep()[_ARMS["with"]]
        ratio = upkeep.rewritten_bytes / upkeep.changed_bytes
        print(
            f"rewritten for each byte that changed: {ratio:.2f} ({upkeep.rewrites} exchanges, {upkeep.files} files)"
        )
        subject.lake.close()
    return lines


def _printed(arm: str, line: dict[str, float]) -> str:
    values = "".join(f"{line[name]:>10.{2 if name in ('scan', 'index') else 0}f}" for name in _COLUMNS)
    return f"{arm:<8}{line['commits']:>8.0f}{values}"


def panels(lines: dict[str, list[dict[str, float]]]) -> list[Panel]:
    """Return a plot for each figure that may grow with the number of commits."""

    def one(name: str, title: str, y: str) -> Panel:
        series: dict[str, tuple[Any, Any]] = {
            f"{arm} maintenance": ([line["commits"] for line in lines[arm]], [line[name] for line in lines[arm]])
            for arm in _ARMS
        }
        return Panel(title=title, look=Look.LINES, x="commits", y=y, series=series)

    return [
        one("scan", "full scan by Spark", "s"),
        one("files", "live data files", ""),
        one("snapshots", "snapshots", ""),
        one("metadata", "metadata file", "kB"),
        one("p50", "median commit", "ms"),
        one("p95", "95th percentile of a commit", "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--target-file-size", default="128MB")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    options = parser.parse_args()
    logging.disable(logging.INFO)
    options.out.mkdir(parents=True, exist_ok=True)
    lines = run(options.commits, options.rows, options.changes, options.target_file_size, options.out)
    title = f"{options.commits} commits of {options.changes} changes to {options.rows} rows"
    plots.draw(panels(lines), title, options.out / "maintenance.png")


if __name__ == "__main__":
    main()
