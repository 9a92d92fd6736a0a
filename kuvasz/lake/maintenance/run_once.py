"""Maintenance without a stream: for cron, and for lakes whose kuvasz is stopped or runs somewhere else.

Works without position indexes: whoever streams notices the new files and reads their keys. Beside a stream it is
fenced by Iceberg: a commit that does not fit what the other one did meanwhile is refused, and worked out again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.config.model import Config
from kuvasz.errors import KuvaszError
from kuvasz.index.kept import IndexPlace
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files import store_access
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.maintenance.maintenance import Maintainer
from kuvasz.lake.table.table import LakeTable
from kuvasz.ports import Target, Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain(
    config: Config, targets: Sequence[Target], *, full: bool, session: SparkSession | None = None
) -> list[Upkeep | tuple[str, KuvaszError]]:
    """Look after tables once; those that the lake does not have are passed over.

    Args:
        config: The whole configuration.
        targets: The tables.
        full: See `kuvasz.ports.Maintenance.run`.
        session: A running Spark; started and stopped otherwise.

    Returns:
        What each table is like now, or its name and why it could not be maintained.

    Raises:
        LakeError: Spark does not start or the catalog cannot be reached.
    """
    own = session or spark.open_session(config)
    try:
        access = store_access.of_lake(config.lake)
        catalog = Catalog(own, config.lake.name, access)
        with tempfile.TemporaryDirectory(prefix="kuvasz-maintain-") as folder:
            maintainer = Maintainer(
                config.maintenance, catalog, Jobs(own), lambda: (), lambda _: None, config.pipeline.state_folder
            )
            outcomes: list[Upkeep | tuple[str, KuvaszError]] = []
            for target in targets:
                try:
                    found = catalog.load(target.name)
                    if found is not None:
                        place = IndexPlace(folder=Path(folder))
                        table = LakeTable(found, target, access, place, Expressions(own))
                        outcomes.append(maintainer.run(table, full=full))
                except KuvaszError as error:
                    outcomes.append((target.name, error))
            maintainer.stop()
            return outcomes
    finally:
        if session is None:
            own.stop()
