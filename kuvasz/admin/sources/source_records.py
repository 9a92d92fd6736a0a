"""Sources as they are listed: what the map says of each, and how it is where a kuvasz runs. Pure."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kuvasz.admin.sources import mapped_url
from kuvasz.config import sources

if TYPE_CHECKING:
    from kuvasz.admin.sources.mapped_url import MappedUrl, SourceSelection
    from kuvasz.config.model import Config

#: A source ready for JSON.
SourceRecord: TypeAlias = dict[str, Any]

#: Source -> tenant -> the tables of its schema, of sources that nobody follows now.
TenantTables: TypeAlias = "Mapping[str, Mapping[str, int]]"

#: The state of a source that left the map, and whose slot is there still.
LEFT: Final = "left the map"


def records(
    config: Config, status: Mapping[str, Any] | None, choice: SourceSelection, tenants: TenantTables | None = None
) -> list[SourceRecord]:
    """Return the sources that are meant, in the map's order, then those that left it while kuvasz ran.

    Args:
        config: The map.
        status: What the running kuvasz says of itself; None: none runs.
        choice: Which are meant.
        tenants: What else is known of tenants.
    """
    said = {} if status is None else {one["source"]: one for one in status["sources"]}
    found = []
    for one in mapped_url.all_of(config):
        tables = said.get(one.name, {}).get("tables", [])
        of_tenants = _tenants(tables) or _unfollowed((tenants or {}).get(one.name, {}))
        if choice.has(one, [tenant["sid"] for tenant in of_tenants]):
            if not choice.has_whole(one):
                of_tenants = [tenant for tenant in of_tenants if choice.has_tenant(tenant["sid"])]
            found.append(_record(one, said.get(one.name), of_tenants))
    is_of_all = choice.database is None
    left = [] if status is None or not is_of_all else status["released"]
    return found + [
        _left(one) for one in left if choice.sid is None or choice.has_tenant(one["source"])
    ]  # fmt: skip


def with_tables(record: SourceRecord, config: Config, status: Mapping[str, Any] | None) -> SourceRecord:
    """Return a source with its tables: as `/status` has them, or as the map names them where none runs."""
    said = [] if status is None else [one for one in status["sources"] if one["source"] == record["source"]]
    if said:
        shown = {None, *(tenant["sid"] for tenant in record["tenants"])}
        tables = [one for one in said[0]["tables"] if one["tenant"] in shown]
    else:
        groups = [group for group in config.databases if group.database == record["database"]]
        tables = [
            {"table": key, "target": ".".join(sources.target_name(config.lake, key, table)), "state": None}
            for group in groups
            for key, table in sources.entries_of(group)
            if group.found is None or group.found.has(key, record["source"])
        ]
    return {**record, "table_list": tables}


def _record(one: MappedUrl, said: Mapping[str, Any] | None, tenants: Sequence[Mapping[str, Any]]) -> SourceRecord:
    tables = [] if said is None else said["tables"]
    slot = None if said is None else said["slot"]
    return {
        "source": one.name,
        "database": one.group.database,
        "sid": one.url.sid,
        "url": one.url.url.redacted(),
        "replication_url": None if one.url.replication_url is None else one.url.replication_url.redacted(),
        "schemas": one.url.schemas,
        "slot": one.slot,
        "state": None if said is None else said["state"],
        "error": None if said is None else said["error"],
        "lag_seconds": None if said is None else said["lag_seconds"],
        "retained_bytes": None if slot is None else slot["retained_bytes"],
        "tables": len(sources.entries_of(one.group)) if said is None else len(tables),
        "states": dict(collections.Counter(table["state"] for table in tables)),
        "tenants": list(tenants),
    }


def _left(one: Mapping[str, Any]) -> SourceRecord:
    return {
        "source": one["source"], "database": None, "sid": None, "url": None, "replication_url": None, "schemas": None,
        "slot": f"kuvasz_{one['source']}", "state": LEFT, "error": None, "lag_seconds": None,
        "retained_bytes": one["retained_bytes"], "tables": 0, "states": {}, "tenants": [],
    }  # fmt: skip


def _tenants(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tenants of a source that is followed."""
    found: dict[str, collections.Counter[str]] = {}
    for table in tables:
        if table["tenant"] is not None:
            found.setdefault(table["tenant"], collections.Counter())[table["state"]] += 1
    return [
        {"sid": sid, "tables": states.total(), "states": dict(states)} for sid, states in sorted(found.items())
    ]  # fmt: skip


def _unfollowed(tables: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"sid": sid, "tables": count, "states": {}} for sid, count in sorted(tables.items())]


__all__ = ["LEFT", "SourceRecord", "TenantTables", "records", "with_tables"]
