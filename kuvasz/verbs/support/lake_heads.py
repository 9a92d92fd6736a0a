"""The part with the heads of the lake's tables: snapshot, schema, counts and notes; no row, no bound of any file.

What is told is chosen by name: summaries and properties of others may hold anything, a partition's value for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kuvasz.config import secrets
from kuvasz.config import sources as config_sources
from kuvasz.lake.format import gaps, source_positions, table_identity
from kuvasz.lake.table import notes as table_notes
from kuvasz.verbs import lakeview
from kuvasz.verbs.lake import notes
from kuvasz.verbs.lakeview import LakeView
from kuvasz.verbs.support.part import PartFiles, in_time, why

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from kuvasz.config.model import Config

#: Iceberg's counts in a snapshot's summary (spec, "Optional Snapshot Summary Fields").
_COUNT = re.compile(r"(added|deleted|removed|total|changed|replaced|manifests|entries)-[a-z-]+")
_NUMBER = re.compile(r"\d+")
_MAKER = frozenset({"operation", "engine-name", "engine-version", "iceberg-version", "spark.app.id", "app-id"})

#: Notes of kuvasz that are told as they stand: what it knows of columns is told in words, what could help to guess at
#: a secret or a hash (`kuvasz.rule.…`, `kuvasz.seed`) is not.
_NOTES = (
    table_identity.KEY_PROPERTY, table_identity.TYPE_PROPERTY, table_notes.ANCHOR_PROPERTY, source_positions.PREFIX,
    gaps.PREFIX, table_notes.REWOUND_PREFIX, table_notes.PARKED_PREFIX, table_notes.PUBLISHED_PREFIX,
)  # fmt: skip
_SETTINGS = ("write.", "read.", "commit.", "history.", "gc.", "format-version")


def gather(config: Config, limit_s: float) -> PartFiles:
    """Return the heads of all tables of the map that can be read in time.

    Args:
        config: The whole configuration.
        limit_s: For all of them together.

    Raises:
        LakeError: The catalog cannot be opened.
    """
    view, names = LakeView(config), [target.identifier for target in config_sources.targets(config)]
    found, late = in_time(names, lambda name: _read(view, name), limit_s)
    missing = [name for name, head in found.items() if head is not None and "error" in head]
    told = [f"{len(missing)} of {len(names)} tables cannot be read"] if missing else []
    told += [f"{len(late)} of {len(names)} tables were not read in time"] if late else []
    return PartFiles(files={"tables.json": found}, notes=tuple(told), is_under_way=bool(late))


def _read(view: LakeView, name: str) -> dict[str, Any] | None:
    try:
        table = view.load(name)
        return None if table is None else head(name, table)
    except Exception as error:  # noqa: BLE001 (one table must not keep the others from being told)
        return {"error": why(error)}


def head(name: str, table: Table) -> dict[str, Any]:
    """Return what is told of a table."""
    metadata, snapshot = table.metadata, table.current_snapshot()
    return {
        "location": metadata.location,
        "metadata_location": table.metadata_location,
        "format_version": metadata.format_version,
        "last_updated_ms": metadata.last_updated_ms,
        "last_sequence_number": getattr(metadata, "last_sequence_number", None),
        "snapshots": len(metadata.snapshots),
        "metadata_files": len(metadata.metadata_log),
        "refs": {
            ref: {"type": str(one.snapshot_ref_type), "snapshot_id": one.snapshot_id}
            for ref, one in metadata.refs.items()
        },
        "schema": [
            {"id": field.field_id, "name": field.name, "type": str(field.field_type), "required": field.required}
            for field in table.schema().fields
        ],
        "key": list(table.schema().identifier_field_ids),
        "partition_by": [f"{field.source_id}: {field.transform}" for field in table.spec().fields],
        "sort_by": [f"{field.source_id}: {field.transform}" for field in table.sort_order().fields],
        "snapshot": None if snapshot is None else _snapshot(snapshot),
        "manifests": None if snapshot is None else _manifests(table, snapshot),
        "properties": {key: _property(key, value) for key, value in sorted(table.properties.items())},
        "notes": _noted(name, table),
    }


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    summary = snapshot.summary
    told = {} if summary is None else {"operation": summary.operation.value, **summary.additional_properties}
    return {
        "id": snapshot.snapshot_id,
        "parent": snapshot.parent_snapshot_id,
        "sequence_number": snapshot.sequence_number,
        "at_ms": snapshot.timestamp_ms,
        "summary": {key: value for key, value in told.items() if _is_told(key, str(value))},
    }


def _is_told(key: str, value: str) -> bool:
    is_count = _COUNT.fullmatch(key) is not None and _NUMBER.fullmatch(value) is not None
    return is_count or key in _MAKER or key.startswith(_NOTES)


def _manifests(table: Table, snapshot: Snapshot) -> dict[str, Any]:
    """Return how many files there are by the manifest list, whose bounds of partitions are left alone."""
    found: dict[str, dict[str, int]] = {}
    for manifest in snapshot.manifests(table.io):
        counts = found.setdefault(manifest.content.name.lower(), dict.fromkeys(("manifests", "bytes", "files"), 0))
        counts["manifests"] += 1
        counts["bytes"] += manifest.manifest_length
        counts["files"] += (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return found


def _property(name: str, value: str) -> object:
    """Return a property's value, or how long it is."""
    if name.startswith(_NOTES) or name.startswith(_SETTINGS):
        return secrets.shown(name, value)
    return f"{len(value)} characters"


def _noted(name: str, table: Table) -> list[Mapping[str, Any]]:
    """Return what is known of the sources' columns, without the digests of rules."""
    noted = notes.noted(name, None, lakeview.seen(table, name))["sources"]
    return [{key: value for key, value in source.items() if key != "rule"} for source in noted or ()]


__all__ = ["gather", "head"]
