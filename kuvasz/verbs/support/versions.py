"""The parts with versions: of kuvasz and all that it runs on, and of the sources' servers."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import platform
from typing import TYPE_CHECKING, Any

from kuvasz import __version__
from kuvasz.config import sources as config_sources
from kuvasz.errors import KuvaszError
from kuvasz.lake.java import jars, runtime, versions
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.verbs.support.part import PartFiles, in_time, why

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source


def gather(config: Config) -> PartFiles:
    """Return the versions of what runs on this machine."""
    packages = {one.metadata["Name"] or "?": one.version for one in importlib.metadata.distributions()}
    return PartFiles(
        files={
            "versions.json": {
                "kuvasz": __version__,
                "python": platform.python_version(),
                "java": _java(),
                "spark": packages.get("pyspark", "?"),
                "iceberg": versions.ICEBERG,
                "jars": {one: jars.cached(one) is not None for one in jars.coordinates(config)},
                "packages": dict(sorted(packages.items(), key=lambda one: one[0].lower())),
            }
        }
    )


def sources(config: Config, limit_s: float) -> PartFiles:
    """Return what the servers of the sources say of themselves, of those that answer in time.

    Args:
        config: The whole configuration.
        limit_s: For all of them together.
    """
    mapped = {source.name: source for source in config_sources.resolve(config)}
    found, late = in_time(mapped, lambda name: _server(mapped[name]), limit_s)
    silent = [name for name, told in found.items() if "error" in told]
    notes = [f"{len(silent)} of {len(mapped)} sources do not answer: {_some(silent)}"] if silent else []
    notes += [f"{len(late)} of {len(mapped)} sources did not answer in time: {_some(late)}"] if late else []
    return PartFiles(files={"sources.json": found}, notes=tuple(notes), is_under_way=bool(late))


def _java() -> str:
    try:
        return runtime.prove()
    except KuvaszError as error:
        return error.message


def _server(source: Source) -> dict[str, Any]:
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            return dataclasses.asdict(introspect.server(connection))
    except Exception as error:  # noqa: BLE001 (one source must not keep the others from being told)
        return {"error": why(error)}


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


__all__ = ["gather", "sources"]
