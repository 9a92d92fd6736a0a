"""Branches of the lake's tables that are written, and shown by main when someone publishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.errors import KuvaszError, LakeError, place_of
from kuvasz.lake.files import store_access
from kuvasz.lake.format import source_positions
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.table.notes import REWOUND_PREFIX
from kuvasz.ports import Branches

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
    targets: Mapping[str, Collection[str]],
    tag: str | None = None,
    *,
    is_trial: bool,
    is_forced: bool = False,
    session: SparkSession | None = None,
) -> list[Published | tuple[str, KuvaszError]]:
    """Publish tables where no kuvasz runs that could be asked; beside one, Iceberg fences the commits.

    Args:
        config: The whole configuration.
        targets: The names of the tables, each with those of the sources that feed it.
        tag: The name of a snapshot of each of their branches; None: the newest.
        is_trial: Change nothing.
        is_forced: Also where the table does not have a source, or was set back.
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
        for target, sources in targets.items():
            try:
                wanted = () if is_forced or tag is not None else sources
                outcomes.append(_publish(catalog, target, tag, is_trial=is_trial, wanted=wanted))
            except KuvaszError as error:
                outcomes.append((target, error))
        return outcomes
    finally:
        if session is None:
            own.stop()


def _publish(
    catalog: Catalog, target: str, tag: str | None, *, is_trial: bool, wanted: Collection[str] = ()
) -> Published:
    """Publish a table by a handle of its own: whoever writes it is kept waiting by nothing but the catalog."""
    found = catalog.load(target)
    if found is None:
        raise LakeError(f"{place_of(table=target)}: there is no such table in the lake", hint="see `kuvasz plan`")
    _refuse_without(wanted, found.properties, target)
    return found.branch.publish(tag, is_trial=is_trial)


def _refuse_without(wanted: Collection[str], properties: Mapping[str, str], target: str) -> None:
    """Refuse a table that lacks a source, as a kuvasz that runs does by what it knows of it.

    Raises:
        LakeError: There is such a source.
    """
    there = source_positions.parse(properties, target)
    found = [f"{source} is not copied" for source in wanted if source not in there]
    found += [
        f"someone set back the rows of {source}" for source in wanted if f"{REWOUND_PREFIX}{source}" in properties
    ]
    if found:
        message = f"{place_of(table=target)}: not all of its sources are in it: {', '.join(sorted(found))}"
        raise LakeError(
            message, hint="start kuvasz and wait for them, or publish it all the same: `kuvasz publish --force`"
        )


__all__ = ["IcebergBranches", "publish_once"]
