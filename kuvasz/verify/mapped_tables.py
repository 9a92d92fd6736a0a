"""The tables of the map as they are compared: each by itself, those too that are one target together."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kuvasz.config import sources as config_sources
from kuvasz.errors import KuvaszError, SourceError
from kuvasz.source import conninfo
from kuvasz.sync.rules import members
from kuvasz.sync.rules.targets import target_of
from kuvasz.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec
    from kuvasz.ports import Target
    from kuvasz.verify.read_only import ReadOnlyLake

_STRAYS = (
    "someone else wrote them: DELETE those whose sid no source of the map has; drop a table with `partitions_regex`"
    " from the lake: it is copied anew"
)


def members_of(source: Source, spec: SourceTableSpec, sid: str | None = None) -> list[SourceTableSpec]:
    """Return the tables that a collapse takes in, each to be compared by itself; any other table as it is.

    With a sid, and where each has one of its own, it is that one's.

    A source that cannot be asked is not there for the comparison either, which says so.
    """
    if not spec.is_collapse:
        return [spec]
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            found = members.found(source, connection)
    except SourceError:
        return [spec]
    mine = [one for one in found.tables if one.member and one.identifier == spec.identifier]
    is_all = sid is None or sid == source.name or spec.schemas is None
    return [one for one in mine if is_all or one.tenant == sid]


def stray_report(lake: ReadOnlyLake, target: Target, sids: dict[str, str | None]) -> Report | None:
    """Return a report of the rows of a table that are of no source; None if there are none.

    Args:
        lake: Where to look.
        target: The table.
        sids: See `ReadOnlyLake.strays`.

    Raises:
        KuvaszError: It cannot be looked at.
    """
    count = lake.strays(target, sids)
    if not count:
        return None
    return Report(
        source="nobody", table="", target=target.name, compared="rows of no source", lake_rows=count, extra=count,
        left=count, why_left=_STRAYS,
    )  # fmt: skip


def fed_by(config: Config) -> dict[str, dict[str, str | None]]:
    """Return each target of which strange rows can be told: its name -> name of each source that feeds it -> its sid.

    The rows of a tenant that is gone stay, and nothing tells strange ones from them.
    """
    found: dict[str, dict[str, str | None]] = {}
    of_tenants: set[str] = set()
    for source in config_sources.resolve(config):
        for spec in source.tables:
            found.setdefault(spec.identifier, {})[source.name] = source.sid
            of_tenants |= {spec.identifier} if spec.schemas is not None else set()
    return {target: sids for target, sids in found.items() if target not in of_tenants}


def stray_reports(config: Config, lake: ReadOnlyLake, specs: Iterable[SourceTableSpec]) -> list[Report]:
    """Return a report for each target of some tables that has rows of no source."""
    sids, found = fed_by(config), list[Report]()
    for target in {spec.identifier: target_of(spec) for spec in specs if spec.identifier in sids}.values():
        with contextlib.suppress(KuvaszError):  # its sources' reports say so
            if (report := stray_report(lake, target, sids[target.name])) is not None:
                found.append(report)
    return found


__all__ = ["fed_by", "members_of", "stray_report", "stray_reports"]
