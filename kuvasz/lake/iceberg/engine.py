"""What the lake of production runs on: Spark, the catalog, the spool, and threads for what is done beside."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kuvasz import private_folder
from kuvasz.errors import LakeError
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk
from kuvasz.index.positions import PositionIndex
from kuvasz.lake.copies import order
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.spool import Spool
from kuvasz.lake.files import store_access
from kuvasz.lake.iceberg.conditions import prove_before_spark, prove_warehouse
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.table.readers import Readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config

#: Threads for what is done beside: reading an index ahead, trying whether the store takes a table again.
_THREADS = 4


class Engine:
    """The engine of one lake, from `open` to `close`.

    Args:
        config: The whole configuration.
        session: A running Spark; started by `open` otherwise.
    """

    def __init__(self, config: Config, session: SparkSession | None = None) -> None:
        self._config = config
        self._session = session
        self._owns_session = session is None

    @property
    def session(self) -> SparkSession:
        """The running Spark."""
        assert self._session is not None
        return self._session

    def open(self) -> None:
        """Start Spark, reach the catalog, and prove that the warehouse can be written.

        Raises:
            ConfigError: There is no Java that will do, or no AWS region.
            LakeError: They cannot be reached or written.
        """
        if self._session is None:
            prove_before_spark(self._config)
            self._session = spark.open_session(self._config)
        self.access = store_access.of_lake(self._config.lake)
        self.jobs = Jobs(self._session)
        self.readers = Readers(self.jobs, self.access)
        self.catalog = Catalog(self._session, self._config.lake.name, self.access)
        self.answer()
        self.spool = _spool(self._config)
        order.clear(self._config.pipeline.state_folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="lake")

    def answer(self) -> None:
        """Find out whether catalog and store answer at all.

        Raises:
            LakeError: Catalog or store do not answer.
        """
        self.catalog.ensure_namespace(self._config.lake.namespace)
        prove_warehouse(self._config)

    def warm_up(self) -> None:
        """Have everything loaded and compiled before the first changes come, executors and driver side by side."""
        commits = self.pool.submit(self.catalog.rehearse, self._config.pipeline.state_folder / "rehearsal")
        _warm_index()
        self.jobs.warm_up()
        commits.result()

    def close(self) -> None:
        """Stop Spark if it was ours."""
        self.pool.shutdown(wait=False)
        if self._owns_session and self._session is not None and self.why_dead() is None:
            self._session.stop()

    def why_dead(self) -> LakeError | None:
        """Say why Spark's JVM ended; None as long as it lives."""
        process = getattr(self.session.sparkContext._gateway, "proc", None)
        code = None if process is None else process.poll()
        if code is None:
            return None
        if code in spark.OUT_OF_MEMORY:
            hint = (
                "give `spark.driver.memory` in `spark.conf` more and start again; nothing that was confirmed is lost"
            )
            return LakeError(f"spark's jvm ran out of memory and ended with {code}", hint=hint)
        hint = "see the log above; nothing that was confirmed is lost: start again"
        return LakeError(f"spark's jvm ended with {code}", hint=hint)


def _spool(config: Config) -> Spool:
    """Return an empty spool.

    Raises:
        LakeError: Its folder cannot be made, or is somebody else's.
    """
    folder = spool_folder(config)
    try:
        spool = Spool(folder, config.lake.live_properties)
        spool.clear()
    except OSError as error:
        hint = "remove the folder, or choose another `pipeline.state`"
        raise LakeError(f"the spool {folder} cannot be used: {error.strerror or error}", hint=hint) from error
    return spool


def spool_folder(config: Config) -> str:
    """Return where executors find what they are given: in shared memory, or in the warehouse for a cluster."""
    if not config.spark.master.startswith("local"):
        return f"{config.lake.warehouse_location}/_kuvasz_spool"
    state, memory = config.pipeline.state_folder, Path("/dev/shm")  # noqa: S108 (a folder of our own below it)
    if memory.is_dir() and os.access(memory, os.W_OK):
        folder = memory / f"kuvasz-{os.getuid()}-{_stable_name(state)}"
        with contextlib.suppress(OSError):  # a stranger may have made it, for everybody may write there
            private_folder.make(folder)
            return str(folder)
    return str(state / "spool")


def _stable_name(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]


def _warm_index() -> None:
    index = PositionIndex.in_memory()
    for number in range(2):
        keys = Keys(hi=np.arange(8, dtype=np.uint64), lo=np.full(8, number, np.uint64))
        index.insert(keys, number, np.arange(8, dtype=np.uint32))
        index.mark()
        index.lookup(keys)
        index.load([(number, bulk.of_one_file(keys))])
    index.close()


__all__ = ["Engine", "spool_folder"]
