"""Branches of the lake's tables that are written, and shown by main when someone publishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.errors import KuvaszError, LakeError, place_of
from kuvasz.lake.files import store_access
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.ports import Branches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.lake.iceberg.engine import Engine
    from kuvasz.ports import Published


class IcebergBranches(Branches):
    """The branches.

    Args:
        engine: Has the catalog, once it is open.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    def publish(self, target: str, tag: str | None = None, *, is_trial: bool = False) -> Published:
        """See `kuvasz.ports.Branches.publish`."""
        return _publish(self._engine.catalog, target, tag, is_trial=is_trial)


def publish_once(
    config: Config,
    targets: Sequence[str],
    tag: str | None = None,
    *,
    is_trial: bool,
    session: SparkSession | None = None,
) -> list[Published | tuple[str, KuvaszError]]:
    """Publish tables where no kuvasz runs that could be asked; beside one, Iceberg fences the commits.

    Args:
        config: The whole configuration.
        targets: The names of the tables.
        tag: The name of a snapshot of each of their branches; None: the newest.
        is_trial: Change nothing.
        session: A running Spark; started and stopped otherwise.

    Returns:
        What main shows of each table, or its name and why it cannot be published.

    Raises:
        LakeError: Spark does not start or the catalog cannot be reached.
    """
    own = session or spark.open_session(config)
    try:
        catalog = Catalog(own, config.lake.name, store_access.of_lake(config.lake))
        outcomes: list[Published | tuple[str, KuvaszError]] = []
        for target in targets:
            try:
                outcomes.append(_publish(catalog, target, tag, is_trial=is_trial))
            except KuvaszError as error:
                outcomes.append((target, error))
        return outcomes
    finally:
        if session is None:
            own.stop()


def _publish(catalog: Catalog, target: str, tag: str | None, *, is_trial: bool) -> Published:
    """Publish a table by a handle of its own: whoever writes it is kept waiting by nothing but the catalog."""
    found = catalog.load(target)
    if found is None:
        raise LakeError(f"{place_of(table=target)}: there is no such table in the lake", hint="see `kuvasz plan`")
    return found.branch.publish(tag, is_trial=is_trial)


__all__ = ["IcebergBranches", "publish_once"]
