"""The lake of production without Spark: its jobs run in this process, its tables are in a `LocalCatalog`."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pytest
from typing_extensions import override

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import LakeError
from kuvasz.lake.executors.spool import Spool
from kuvasz.lake.files.data_file import read_rows
from kuvasz.lake.files.files import read_dead
from kuvasz.lake.iceberg import lake as iceberg_lake
from kuvasz.lake.iceberg.engine import Engine
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.table.readers import Readers
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import POSTGRES_EPOCH_US, TableType
from kuvasz.modes import system_columns
from kuvasz.modes.history import FIRST_US, FOREVER_US
from kuvasz.state.store import state_of
from tests.support.changes import ITEMS, TARGET, feed, target
from tests.support.local_catalog import LocalCatalog, Stored
from tests.support.worlds import World


class LocalJobs:
    """Runs jobs at once; each can be made to fail."""

    is_local, parallelism, session = True, 2, None

    def __init__(self) -> None:
        self.ran: list[str] = []  #: names of the jobs
        self.failures: list[str] = []  #: each is the failure of the next job

    def run(
        self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any], sizes: Sequence[int],
        slots: int | None = None,
    ) -> list[Any]:  # fmt: skip
        assert len(tasks) == len(sizes)
        self.ran.append(type(job).__name__)
        if self.failures:
            raise LakeError(self.failures.pop(0))
        return list(job(iter(tasks)))

    def stream(self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]) -> Iterator[Any]:
        yield from self.run(job, tasks, [1] * len(tasks))

    def go_background(self) -> None:
        """There is nothing else to run."""

    def join(self) -> None:
        """See `go_background`."""

    def cancel_background(self) -> None:
        """See `go_background`."""


class LocalEngine(Engine):
    """What the lake runs on, within this process."""

    @override
    def open(self) -> None:
        pipeline, properties = self._config.pipeline, self._config.lake.properties
        self.jobs = cast("Any", LocalJobs())
        self.access = properties
        self.readers = Readers(self.jobs, properties)
        self.catalog = cast("Any", LocalCatalog(Path(self._config.lake.warehouse_location.removeprefix("file://"))))
        self.spool = Spool(str(pipeline.state_folder / "spool"), properties)
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="lake")

    @property
    @override
    def session(self) -> Any:
        return None

    @override
    def answer(self) -> None:
        self.catalog.ensure_namespace("shop")

    @override
    def warm_up(self) -> None:
        """Nothing is slow the first time."""

    @override
    def close(self) -> None:
        self.pool.shutdown()

    @override
    def why_dead(self) -> LakeError | None:
        return None


class LocalWorld(World):
    """See `World`; the lake is the one of production."""

    lake: IcebergLake

    def __init__(
        self, folder: Path, maintenance: Mapping[str, object] | None = None, *, about: str = "off", **pipeline: object
    ) -> None:
        self.config = _config(folder, maintenance or {"enabled": False}, pipeline, about)
        self.lake = self.begin()

    def begin(self, catalog: LocalCatalog | None = None) -> IcebergLake:
        """Begin another process, upon what another one has left."""
        with mock.patch.object(iceberg_lake, "Engine", LocalEngine):
            self.lake = IcebergLake(self.config, state_of(self.config).witness)
        self.lake.open()
        if catalog is not None:
            self.lake.engine.catalog.stored = catalog.stored  # type: ignore[attr-defined]
        return self.lake

    @property
    def catalog(self) -> LocalCatalog:
        return cast("LocalCatalog", self.lake.engine.catalog)

    @property
    def jobs(self) -> LocalJobs:
        return cast("LocalJobs", self.lake.engine.jobs)

    def stored(self, name: str = TARGET) -> Stored:
        """The table as the catalog has it."""
        return self.catalog.stored[name]

    def loaded(self, name: str = TARGET) -> LakeTable:
        """The table at work."""
        return self.lake.table(name)

    @override
    def table(self, name: str) -> pa.Table:
        now = self.stored(name).now
        schema = now.schema.arrow()
        parts = [schema.empty_table()]
        for file in now.files:
            path, rows = file.data["file-path"], file.data["record-count"]
            dead = read_dead({}, path, [json.dumps(delete) for delete in file.deletes])
            alive = [row for row in range(rows) if row not in dead]
            if alive:
                parts.append(read_rows({}, path, alive, schema))
        return pa.concat_tables(parts)

    def merge_files(self, name: str = TARGET, *, is_bounded: bool = True) -> None:
        """Have another engine merge a table's files, of whatever sources, into one."""
        sid_id = self.loaded(name).definition.sid_id
        assert sid_id is not None
        self.stored(name).merge_files(sid_id, is_bounded=is_bounded)

    def versions(self, name: str = TARGET) -> list[tuple[Any, ...]]:
        """Versions of a history: key, n, begin and end in µs since 2000, whether it was deleted; None: no limit."""
        found = self.table(name)
        micros = [
            [
                None if us in (FIRST_US, FOREVER_US) else us - POSTGRES_EPOCH_US
                for us in found.column(one).cast(pa.int64()).to_pylist()
            ]
            for one in (system_columns.START, system_columns.END)
        ]
        plain = [found.column(one).to_pylist() for one in ("id", "n")]
        rows = zip(*plain, *micros, found.column(system_columns.DELETED).to_pylist(), strict=True)
        return sorted(rows, key=lambda row: (row[0], row[2] or -1, row[1]))

    @override
    def snapshots(self, name: str = TARGET) -> int:
        return len(self.stored(name).now.snapshots)

    def files(self, name: str = TARGET) -> int:
        """How many data files the current snapshot has."""
        return len(self.stored(name).now.files)

    @override
    def orphans(self, name: str = TARGET) -> list[str]:
        known = self.catalog.known_files(name)
        folder = Path(self.stored(name).location.removeprefix("file://"), "data")
        return sorted(file.name for file in folder.glob("kvsz-*") if file.name not in known)


def _config(folder: Path, maintenance: Mapping[str, object], pipeline: Mapping[str, object], about: str) -> Config:
    document = {
        "lake": {"warehouse": str(folder / "wh"), "namespace": "shop", "about": about},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "50ms", **pipeline},
        "maintenance": maintenance,
        "server": {"address": None},
        "databases": [{"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}],
    }
    file = folder / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


@pytest.fixture
def local_world(tmp_path: Path) -> Iterator[LocalWorld]:
    """The lake of production without Spark."""
    made = LocalWorld(tmp_path)
    yield made
    made.lake.close()


@pytest.fixture
def history_world(local_world: LocalWorld) -> LocalWorld:
    """The same with a history, copied from two empty sources."""
    for source in ("eu", "us"):
        local_world.lake.prepare(target(table_type=TableType.HISTORY), feed(source), ITEMS)
        local_world.copy(source)
    return local_world
