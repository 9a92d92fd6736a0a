"""What hours of small commits do to a table, with maintenance and without.

    python -m benchmarks.maintenance [--commits 3000] [--rows 200000] [--changes 200]

Commits mini-transactions of uniform updates to a real Iceberg table as fast as they go, and shows, every tenth of
the way: files, files with deletes, snapshots, size of the metadata file, the median and 95th percentile of a commit
since the last line, and the seconds of a full scan by Spark. An interval of maintenance stands for sixty commits:
as many as one a second would be. Seconds mean nothing by themselves; compare the two runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
import urllib.parse
from pathlib import Path

import numpy as np

from kuvasz.config.load import load
from kuvasz.lake.iceberg import IcebergLake
from kuvasz.model import Position
from kuvasz.ports import Receipt
from tests import oracle
from tests.contract.changes import ITEMS, TARGET, Sender, feed, insert, target, update, work

_COMMITS_PER_LOOK = 60


class Subject:
    def __init__(self, folder: Path, rows: int, *, is_maintained: bool) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/wh"}
        document = {
            "lake": {"uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": str(folder / "wh"), "namespace": "shop"},
            "pipeline": {"state": str(folder / "state")},
            "maintenance": {"interval": "1d", "snapshot_age": "30s"} if is_maintained else "off",
            "server": {"address": None},
            "databases": [{"database": "x", "urls": [{"url": "postgresql:///x"}], "tables": {"items": None}}],
        }
        (folder / "map.yaml").write_text(json.dumps(document))
        self.lake = IcebergLake(load(folder / "map.yaml", {}).config)
        self.lake.open()
        self.is_maintained = is_maintained
        self.rows = rows
        self.sender = Sender()
        self.random = random.Random(1)
        self.lake.prepare(target(), feed(), ITEMS)
        self.lake.copy(feed(), ITEMS, [], Position(lsn=1000), lambda *_: None)
        first = work(self.sender.one(*(insert(key, 0, f"a text of no great length {key}") for key in range(rows))))
        list(self.lake.commit(self.lake.write([first])))

    def commit(self, changes: int) -> float:
        keys = self.random.sample(range(self.rows), changes)
        messages = [update(key, key, "another text of that length") for key in keys]
        messages.append(insert(self.rows, 0, "new"))
        self.rows += 1
        written = self.lake.write([work(self.sender.one(*messages))])
        begin = time.perf_counter()
        (outcome,) = self.lake.commit(written)
        assert isinstance(outcome, Receipt), outcome
        return time.perf_counter() - begin

    def line(self, commits: int, seconds: list[float]) -> str:
        table = oracle.open_table(self.properties, TARGET)
        begin = time.perf_counter()
        query = f"SELECT count(*), sum(length(body)) FROM kuvasz.{TARGET}"
        found = self.lake.session.sql(query).collect()[0][0]
        scan = time.perf_counter() - begin
        assert found == self.rows, (found, self.rows)
        tasks = list(table.scan().plan_files())
        deletes = sum(1 for task in tasks if task.delete_files)
        size = Path(urllib.parse.urlparse(table.metadata_location).path).stat().st_size
        p50, p95 = np.percentile(seconds, (50, 95))
        return (
            f"{commits:>8}{len(tasks):>8}{deletes:>9}{len(table.metadata.snapshots):>11}{size / 1024:>10.0f} kB"
            f"{p50 * 1000:>9.0f}{p95 * 1000:>9.0f} ms{scan:>9.2f} s"
        )


def run(commits: int, rows: int, changes: int, *, is_maintained: bool) -> None:
    print(f"\n{'with' if is_maintained else 'without'} maintenance, {changes} of {rows} rows a commit")
    print(" commits   files  deletes  snapshots  metadata   commit p50      p95     scan")
    with tempfile.TemporaryDirectory(prefix="kuvasz-bench-") as folder:
        subject = Subject(Path(folder), rows, is_maintained=is_maintained)
        maintainer = subject.lake._maintainer
        assert maintainer is not None
        seconds: list[float] = []
        for number in range(1, commits + 1):
            seconds.append(subject.commit(changes))
            if is_maintained and number % _COMMITS_PER_LOOK == 0:
                maintainer.look()
            if number % max(1, commits // 10) == 0:
                print(subject.line(number, seconds), flush=True)
                seconds = []
        for upkeep in subject.lake.upkeep().values():
            ratio = upkeep.rewritten_bytes / upkeep.changed_bytes
            print(f"rewritten for each byte that changed: {ratio:.2f} ({upkeep.rewrites} exchanges)")
        subject.lake.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    for is_maintained in (False, True):
        run(options.commits, options.rows, options.changes, is_maintained=is_maintained)


if __name__ == "__main__":
    main()
