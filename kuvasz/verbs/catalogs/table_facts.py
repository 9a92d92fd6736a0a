"""What a table's metadata say of it, as far as verbs ask that need none of its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """One snapshot."""

    id: int
    parent_id: int | None
    at_ms: int
    summary: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table of a catalog."""

    columns: Mapping[str, str]  #: name -> type, as Iceberg writes it
    properties: Mapping[str, str]
    branches: Mapping[str, int]  #: name -> its newest snapshot; tags, too
    current_id: int | None  #: the newest snapshot of main
    snapshots: Sequence[SnapshotFacts]
    location: str  #: of the metadata


def of_table(found: Table) -> TableFacts:
    """Return what PyIceberg has read."""
    metadata = found.metadata
    return TableFacts(
        columns={field.name: str(field.field_type) for field in found.schema().fields},
        properties=found.properties,
        branches={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        current_id=metadata.current_snapshot_id,
        snapshots=[
            SnapshotFacts(
                id=one.snapshot_id, parent_id=one.parent_snapshot_id, at_ms=one.timestamp_ms,
                summary=one.summary.additional_properties if one.summary else {},
            )
            for one in metadata.snapshots
        ],
        location=found.metadata_location,
    )  # fmt: skip


__all__ = ["SnapshotFacts", "TableFacts", "of_table"]
