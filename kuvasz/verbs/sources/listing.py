"""``kuvasz source list`` and ``show``: the sources of the map, and how they are where a kuvasz runs."""

from __future__ import annotations

import concurrent.futures
import contextlib
from typing import TYPE_CHECKING, Any

from kuvasz.admin.sources import source_records
from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, KuvaszError, place_of
from kuvasz.shown import figures
from kuvasz.source import conninfo
from kuvasz.sync.rules import members
from kuvasz.verbs import remote, text
from kuvasz.verbs.check import THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.admin.sources.source_records import SourceRecord
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source


def run(config: Config, choice: SourceSelection, *, with_tables: bool = False) -> list[SourceRecord]:
    """Return the sources that are meant, ready for JSON.

    Args:
        config: The map.
        choice: Which are meant.
        with_tables: Whether each has its tables.

    Raises:
        ConfigError: None is meant.
    """
    status = _status(config)
    tenants, silent = ({}, {}) if status is not None else _asked(config, SourceSelection(database=choice.database))
    found = source_records.records(config, status, choice, tenants)
    for one in found:
        one["error"] = one["error"] or silent.get(one["source"])
    if not found:
        raise ConfigError(f"the map has no {choice.describe()}", hint="`kuvasz source list` lists them")
    return [source_records.with_tables(one, config, status) for one in found] if with_tables else found


def _status(config: Config) -> dict[str, Any] | None:
    with contextlib.suppress(remote.NotRunning, ConfigError):
        return remote.status(config)
    return None


def _asked(config: Config, choice: SourceSelection) -> tuple[dict[str, Mapping[str, int]], dict[str, str]]:
    """Return the tenants of sources that have some, by asking these; and why those that do not answer do not."""
    asked = [
        source
        for source in config_sources.resolve(config)
        if any(spec.schemas is not None for spec in source.tables)
        and (choice.database is None or source.database == choice.database)
    ]
    tenants: dict[str, Mapping[str, int]] = {}
    silent: dict[str, str] = {}
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="tenants") as pool:
        for source, found in zip(asked, pool.map(_tenants, asked), strict=True):
            if isinstance(found, KuvaszError):
                silent[source.name] = found.message
            else:
                tenants[source.name] = found
    return tenants, silent


def _tenants(source: Source) -> Mapping[str, int] | KuvaszError:
    found: dict[str, int] = {}
    try:
        with conninfo.asked(source.url.get(), place_of(source.name)) as connection:
            for spec in members.found(source, connection).tables:
                if spec.tenant is not None:
                    found[spec.tenant] = found.get(spec.tenant, 0) + 1
    except KuvaszError as error:
        return error
    return found


def render(found: Sequence[SourceRecord]) -> str:
    """Return a row for each source and tenant, and below it the errors."""
    rows = [row for one in found for row in _rows(one)]
    lines = [text.table(("source", "group", "sid", "state", "tables", "lag", "WAL held", "where"), rows)]
    for one in found:
        lines += [f"  {one['source']}: {one['error']}"] if one["error"] else []
        lines += [
            "  ".join(("", one["source"], table["table"], table["target"], table["state"] or "not running"))
            for table in one.get("table_list", ())
        ]
    return text.lines(line for part in lines for line in part.split("\n"))


def _rows(one: SourceRecord) -> list[tuple[str, ...]]:
    lag = "" if one["lag_seconds"] is None else f"{one['lag_seconds']:.1f} s"
    held = "" if one["retained_bytes"] is None else figures.size(one["retained_bytes"])
    first = (
        one["source"], one["database"] or "", one["sid"] or "", one["state"] or "not running",
        _tables(one), lag, held, one["url"] or "",
    )  # fmt: skip
    tenants = [("", "", tenant["sid"], "", _tables(tenant), "", "", "") for tenant in one["tenants"]]
    return [first, *tenants]


def _tables(one: Mapping[str, Any]) -> str:
    """Say how many tables there are, and which states they have if not all stream."""
    others = {state: count for state, count in one["states"].items() if state != "streaming"}
    told = ", ".join(f"{count} {state}" for state, count in sorted(others.items()))
    return f"{one['tables']}" + (f" ({told})" if told else "")


__all__ = ["render", "run"]
