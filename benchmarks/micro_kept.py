"""Measures what it costs to keep a table's index in the store while the table changes: `cluster.indexes`.

    python benchmarks/micro_kept.py [--rows 2000000] [--fresh 50000] [--commits 40]

Commits of some rows each, half of which replace others, come to a table of some rows whose files are names alone;
after each the keeper looks, as it does every ten seconds. Prints CPU (of the keeper's thread) and bytes written a row
that is new, for how long commits were held up, and how long an orderly end takes for what was new by then. The store
is a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from kuvasz.config.model import ClusterConfig, Config, LakeConfig
from kuvasz.fold.keys import Keys
from kuvasz.index.kept import IndexCheckpoints
from kuvasz.lake.files.object_folder import kept_index
from kuvasz.lake.iceberg.index_keeper import IndexUpkeep
from tests.support.lake_table import World


class Table:
    """A table that one process writes, and its keeper.

    Args:
        folder: For its index and the store.
        rows: That it has at the start.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self._random = np.random.default_rng(1)
        self._hi = self._random.integers(0, 1 << 63, 2 * rows, dtype=np.uint64)
        cluster = ClusterConfig.model_validate({"coordinator": "postgresql:///c", "indexes": str(folder / "store")})
        config = Config.model_construct(cluster=cluster, lake=LakeConfig())
        self._world = World(folder / "machine", kept=kept_index(config, {}, "0b5e"))
        self.table = self._world.table
        tables = cast("Any", SimpleNamespace(all=lambda: [self.table], having=self._having))
        self.keeper = IndexUpkeep(config, {}, tables)

    @contextlib.contextmanager
    def _having(self, _: object) -> Iterator[bool]:
        with self.table.lock:
            yield True

    def commit(self, path: str, rows: np.ndarray) -> None:
        """Have a file of some rows more, known to the index."""
        world, snapshots = self._world, self._world.iceberg.snapshots
        world.iceberg.add(path, len(rows))
        world.keys[path] = Keys(hi=self._hi[rows], lo=rows.astype(np.uint64))
        snapshots.sequence += 1
        snapshots.current_id, snapshots.goes_on_from = snapshots.sequence, lambda *_: True
        self.table.index.catch_up() if self.table.index.is_open else self.table.index.read()

    def changed(self, number: int, rows: int) -> None:
        """Commit some rows, half of which replace others."""
        self.commit(f"{number}", self._random.choice(2 * self.rows, rows, replace=False))


def counted(table: Table) -> tuple[list[int], list[float]]:
    """Return lists that get the bytes of each checkpoint that is kept, and the seconds that commits wait then."""
    sizes: list[int] = []
    held_s: list[float] = []
    keep, save = IndexCheckpoints.keep, table.table.index.save

    def kept(checkpoints: IndexCheckpoints, *arguments: Any, **options: Any) -> int:
        sizes.append(keep(checkpoints, *arguments, **options))
        return sizes[-1]

    def put(place: object, name: str, what: object) -> None:
        setattr(place, name, what)

    def saved() -> None:
        begin = time.monotonic()
        save()
        held_s.append(time.monotonic() - begin)

    put(IndexCheckpoints, "keep", kept)
    put(table.table.index, "save", saved)
    return sizes, held_s


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--fresh", type=int, default=50_000)
    parser.add_argument("--commits", type=int, default=40)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder), chosen.rows)
        table.commit("all", np.arange(chosen.rows))
        table.keeper.keep(table.table)
        sizes, held_s = counted(table)
        cpu = 0.0
        for number in range(chosen.commits):
            table.changed(number, chosen.fresh)
            begin = time.thread_time()
            table.keeper.keep(table.table)
            cpu += time.thread_time() - begin
        fresh = chosen.commits * chosen.fresh
        print(f"{chosen.rows:,} rows, {fresh:,} new ones in {chosen.commits} commits, kept {len(sizes)} times")
        print(f"  CPU {cpu / fresh * 1e6:.3f} µs and {sum(sizes) / fresh:.1f} bytes a new row")
        print(f"  commits wait {statistics.median(held_s):.3f} s each time, {max(held_s):.3f} s at most")
        table.changed(-1, chosen.fresh)
        begin = time.monotonic()
        table.keeper.stop()
        print(f"  an end with {chosen.fresh:,} new rows or more takes {time.monotonic() - begin:.3f} s")


if __name__ == "__main__":
    main()
