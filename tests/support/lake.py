"""A real Spark for the whole session, a fresh catalog and warehouse per test, and kuvasz running in a thread."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import json
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

import pytest
import uvloop
from pyspark.sql import SparkSession

from kuvasz import failpoints
from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.lake.iceberg.engine import Engine
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.jvm import spark
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.source.catalog import look
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from kuvasz.sync.rules.map_difference import MapDifference
from tests.support import oracle, scratch
from tests.support.failpoints import failing
from tests.support.postgres import Database
from tests.support.waiting import PATIENCE_S, wait_until

_numbers = itertools.count(1)
_Result = TypeVar("_Result")


class LakeFolder:
    """A catalog, a warehouse and a state folder of one test's own; with a branch, all is written and read there."""

    def __init__(self, session: SparkSession, *, format_version: int = 3, branch: str | None = None) -> None:
        self.session = session
        self.branch = branch
        self.folder = scratch.new_folder("kuvasz-lake-")
        self.catalog = f"lake{next(_numbers)}"
        self.format_version = format_version

    @property
    def pyiceberg(self) -> dict[str, str]:
        """Properties of the same catalog for PyIceberg."""
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/wh"}
        return {"type": "sql", **where, **({} if self.branch is None else {oracle.BRANCH: self.branch})}

    def spark_name(self, target: str) -> str:
        """What Spark calls a table, on its branch."""
        return f"{self.catalog}.shop.`{target}`" + ("" if self.branch is None else f".branch_{self.branch}")

    def config(
        self,
        databases: list[dict],
        maintenance: Mapping[str, object] | None = None,
        lake: Mapping[str, object] | None = None,
        **pipeline: Any,
    ) -> Config:
        """Return a configuration; its catalog is made known to Spark."""
        document = {
            "lake": {
                "name": self.catalog,
                "uri": f"jdbc:sqlite:{self.folder}/catalog.db",
                "warehouse": str(self.folder / "wh"),
                "namespace": "shop",
                "format_version": self.format_version,
                **({} if self.branch is None else {"branch": self.branch}),
                **(lake or {}),
            },
            "pipeline": {"state": str(self.folder / "state"), "commit_interval": "50ms", **pipeline},
            "maintenance": maintenance or {},
            "server": {"address": None},
            "databases": databases,
        }
        file = self.folder / "map.yaml"
        file.write_text(json.dumps(document))
        config = load(file, {}).config
        for name, value in spark.settings(config).items():
            if name.startswith("spark.sql.catalog."):
                self.session.conf.set(name, value)
        return config

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Pipeline:
    """kuvasz in a thread with a loop of its own, as the command runs it."""

    app: App  #: from its beginning on

    def __init__(self, config: Config, lake: LakeFolder, *, until_caught_up: bool = False) -> None:
        self.config = config
        self.folder = lake
        self._until_caught_up = until_caught_up
        self.exit_code: int | None = None
        self.error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kuvasz", daemon=True)

    def _run(self) -> None:
        try:
            self.exit_code = uvloop.run(self._main())
        except BaseException as error:  # noqa: BLE001 (the test decides what it means)
            self.error = error
        finally:
            self._ready.set()

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        lake = IcebergLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=lake)
        await asyncio.to_thread(lake.open)
        self._ready.set()
        return await self.app.run(until_caught_up=self._until_caught_up)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ended(self) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it goes on"
        if self.error is not None:
            raise self.error
        assert self.exit_code is not None
        return self.exit_code

    def stop(self) -> None:
        """Stop as SIGTERM does and wait for the end."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.app.stop)
        self._thread.join(120)  # what a busy machine takes; a stop itself takes a second
        if self._thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
        assert not self._thread.is_alive(), "kuvasz did not stop in time"
        if self.error is not None:
            raise self.error

    def die(self) -> None:
        """End as if killed: nothing more reaches the lake or the sources, and nothing is ended in order."""
        with failing(*failpoints.NAMES):
            if self._loop is not None and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self.app.stop)
            self._thread.join(120)  # what a busy machine takes; a stop itself takes a second
        assert not self._thread.is_alive(), "kuvasz did not die in time"

    def call(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine on the pipeline's loop."""
        assert self._loop is not None
        assert self._thread.is_alive(), f"it has ended with {self.exit_code}: {self.error or self.errors()}"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def take_over(self) -> MapDifference:
        """Have the map that is in the folder by now take the place of the one that runs; returns when it has."""

        async def change() -> MapDifference:
            found = self.app.difference(load(self.folder.folder / "map.yaml", {}).config)
            self.app.take_over(found)
            return found

        found = self.call(change())
        wait_until(lambda: not self.app._sources.is_changing, "the map is in use")
        return found

    def tell(self, verb: str, target: str, *sources: str) -> None:
        """Have sources pause, resume, retry or resync a target, as the HTTP server does."""

        async def command() -> None:
            for source in sources:
                getattr(self.app.sync(source).commands, verb)(target)

        self.call(command())

    def states(self) -> Mapping[tuple[str, str], State]:
        """(source, target) -> state."""
        return {(state.source, state.target): state.state for state in self.app.states.snapshot()}

    def errors(self) -> list[str]:
        """The errors of tables and sources."""
        view = self.app.view()
        return [str(t.error) for t in view.tables if t.error] + [s.error for s in view.sources if s.error]

    def wait_end(self) -> None:
        """Wait until kuvasz ends by itself."""
        wait_until(lambda: not self._thread.is_alive(), "kuvasz ends")

    def wait_streaming(self) -> None:
        """Wait until every table streams."""
        wait_until(self._settled, lambda: f"all tables stream: {self.states()} {self.errors()}")

    def _settled(self) -> bool:
        assert self.error is None, self.error
        return all(state is State.STREAMING for state in self.states().values())

    def wait_state(self, source: str, target: str, state: State) -> None:
        wait_until(
            lambda: self.states().get((source, target)) is state,
            lambda: f"{target} of {source} is {state}: {self.states()}, {self.errors()}, {self._end()}",
        )

    def _end(self) -> str:
        return "it runs" if self._thread.is_alive() else f"it has ended with {self.exit_code}: {self.error}"

    def wait_applied(self, *databases: Database) -> None:
        """Wait until everything the databases have committed so far is durable in the lake and confirmed."""
        for database in databases:
            with database.connect(autocommit=True) as connection:
                now = look.end_to_send(connection)
            for sync in [s for s in self.app.sources if s.source.url.get() == database.url]:
                self._wait_applied(sync.source.name, now)

    def _wait_applied(self, source: str, now: int) -> None:
        def is_applied() -> bool:
            return self._alive() and self.app.progress.confirmable(source) >= now and not self.lacks(source)

        wait_until(is_applied, lambda: f"{source} is applied: {self.errors()}")

    def lacks(self, name: str) -> bool:
        """Whether anything of a source is confirmed and not in the lake: it is parked, or a copy will bring it."""
        is_parked = any(source == name for _, source in self.app.lot.views())
        states = [state for state in self.app.states.snapshot() if state.source == name]
        return is_parked or any(state.state in {State.NEW, State.COPYING} or state.is_resync_due for state in states)

    def _alive(self) -> bool:
        assert self.error is None, self.error
        assert not self.errors(), self.errors()
        return True

    def assert_equal(self, target: str, *sources: oracle.Rows, key: tuple[str, ...] = ("id",)) -> None:
        """The lake's table, read by Spark, PyIceberg and DuckDB, holds the rows of the sources."""
        expected = sources[0]
        for more in sources[1:]:
            expected = expected + more
        name = f"shop.{target}"
        lake = self.folder
        for rows in (
            oracle.lake_rows_pyiceberg(lake.pyiceberg, name, catalog=lake.catalog),
            oracle.lake_rows_spark(lake.session, lake.spark_name(target)),
            oracle.lake_rows_duckdb(lake.pyiceberg, name, catalog=lake.catalog),
        ):
            oracle.assert_equal(expected, rows, key=key)

    def rows(self, target: str) -> list[tuple]:
        """The rows of a table as PyIceberg reads them, without sid."""
        found = oracle.lake_rows_pyiceberg(self.folder.pyiceberg, f"shop.{target}", catalog=self.folder.catalog)
        return list(found.select([name for name in found.columns if name != "sid"]).rows.elements())

    def snapshots(self, target: str) -> int:
        """The number of snapshots a table has."""
        table = oracle.open_table(self.folder.pyiceberg, f"shop.{target}", catalog=self.folder.catalog)
        return len(table.metadata.snapshots)


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for all tests; catalogs are added as tests need them."""
    file = tmp_path_factory.mktemp("spark") / "map.yaml"
    file.write_text(json.dumps({"lake": {"uri": f"jdbc:sqlite:{file.parent}/c.db", "warehouse": str(file.parent)},
                                "spark": {"master": "local[2]"}, "databases": [
        {"database": "none", "urls": [{"url": "postgresql:///none"}], "tables": {"none": None}}]}))  # fmt: skip
    session = spark.open_session(load(file, {}).config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "warm_up", _first(Engine.warm_up))
        yield session
    session.stop()


def _first(warm_up: Callable[[Engine], None]) -> Callable[[Engine], None]:
    """Have the first lake that opens on a Spark warm it up; it stays warm for those after it."""
    warm: list[SparkSession] = []

    def once(engine: Engine) -> None:
        if engine.session not in warm:
            warm_up(engine)
            warm.append(engine.session)

    return once


@pytest.fixture
def lake_folder(spark_session: SparkSession, request: pytest.FixtureRequest) -> Iterator[LakeFolder]:
    """A lake of the test's own; its parameter is the branch that it is written to."""
    folder = LakeFolder(spark_session, branch=getattr(request, "param", None))
    yield folder
    folder.remove()


#: Has a test run once as ever, and once with all tables on a branch.
on_a_branch = pytest.mark.parametrize(
    "lake_folder", [None, pytest.param("staging", marks=pytest.mark.slow)], indirect=True, ids=["main", "branch"]
)


def group(
    databases: Mapping[str | None, Database], tables: Mapping[str, dict | None], name: str = "shop"
) -> list[dict]:
    """Return the map's group of databases by sid."""
    urls = [{"url": database.url} | ({"sid": sid} if sid else {}) for sid, database in databases.items()]
    return [{"database": name, "urls": urls, "tables": dict(tables)}]


class MemoryPipeline(Pipeline):
    """kuvasz in a thread, with the lake in memory."""

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.lake = MemoryLake()
        self.app = App(self.config, lake=self.lake)
        self._ready.set()
        return await self.app.run()

    def rows(self, target: str = "items") -> list[tuple]:
        return sorted(tuple(row.values()) for row in self.lake.rows(f"shop.{target}").to_pylist())
