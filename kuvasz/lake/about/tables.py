"""What the tables about the lake are: their columns, in the order in which readers see them.

docs/about-the-lake.md says the same, and a test holds it to this.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from kuvasz.lake.format.schema import Field
from kuvasz.model import LakeType, TableType, ValueType
from kuvasz.ports import Target

COMMITS: Final = "commits"
EVENTS: Final = "events"
SOURCES: Final = "sources"
REJECTS: Final = "rejects"
CUTS: Final = "cuts"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AboutTable:
    """One of the tables."""

    name: str
    time: str  #: the column with the time of a row: rows are laid out by its day, and go by it
    columns: dict[str, LakeType]

    def fields(self) -> tuple[Field, ...]:
        """Return its columns, with provisional ids."""
        made: list[Field] = []
        number = 1
        for name, kind in self.columns.items():
            inner = (number + 1, number + 2) if kind is LakeType.MAP else ()
            made.append(
                Field(
                    field_id=number, name=name, type=ValueType(kind=kind), required=name == self.time, inner_ids=inner
                )
            )  # fmt: skip
            number += 1 + len(inner)
        return tuple(made)

    def target(self, namespace: str) -> Target:
        """Return what it would be in a map: rows are only added, and lie by days."""
        return Target(name=f"{namespace}.{self.name}", type=TableType.APPEND, partition_by=(f"days({self.time})",))


TABLES: Final = (
    AboutTable(
        name=COMMITS,
        time="committed_at",
        columns={
            "target": LakeType.STRING,
            "snapshot_id": LakeType.LONG,
            "sequence": LakeType.LONG,
            "committed_at": LakeType.TIMESTAMPTZ,
            "kind": LakeType.STRING,
            "positions": LakeType.MAP,
            "inserts": LakeType.LONG,
            "updates": LakeType.LONG,
            "deletes": LakeType.LONG,
            "added_rows": LakeType.LONG,
            "files": LakeType.LONG,
            "bytes": LakeType.LONG,
            "writing_seconds": LakeType.DOUBLE,
            "waiting_seconds": LakeType.DOUBLE,
            "committing_seconds": LakeType.DOUBLE,
            "interval_seconds": LakeType.DOUBLE,
        },
    ),
    AboutTable(
        name=EVENTS,
        time="happened_at",
        columns={
            "happened_at": LakeType.TIMESTAMPTZ,
            "run": LakeType.STRING,
            "number": LakeType.LONG,
            "severity": LakeType.STRING,
            "event": LakeType.STRING,
            "text": LakeType.STRING,
            "source": LakeType.STRING,
            "table_name": LakeType.STRING,
            "fields": LakeType.STRING,
        },
    ),
    AboutTable(
        name=SOURCES,
        time="seen_at",
        columns={
            "seen_at": LakeType.TIMESTAMPTZ,
            "source": LakeType.STRING,
            "source_sid": LakeType.STRING,
            "target": LakeType.STRING,
            "table_name": LakeType.STRING,
            "state": LakeType.STRING,
            "lsn": LakeType.STRING,
            "valid_through": LakeType.TIMESTAMPTZ,
            "rows_applied": LakeType.LONG,
            "bytes_applied": LakeType.LONG,
            "rows_copied": LakeType.LONG,
            "lag_seconds": LakeType.DOUBLE,
            "wal_held_bytes": LakeType.LONG,
            "error": LakeType.STRING,
            "verified_at": LakeType.TIMESTAMPTZ,
        },
    ),
    AboutTable(
        name=REJECTS,
        time="rejected_at",
        columns={
            "rejected_at": LakeType.TIMESTAMPTZ,
            "target": LakeType.STRING,
            "source": LakeType.STRING,
            "table_name": LakeType.STRING,
            "operation": LakeType.STRING,
            "lsn": LakeType.LONG,
            "ordinal": LakeType.LONG,
            "xid": LakeType.LONG,
            "committed_at": LakeType.TIMESTAMPTZ,
            "key": LakeType.STRING,
            "column_name": LakeType.STRING,
            "reason": LakeType.STRING,
            "raw": LakeType.STRING,
            "raw_row": LakeType.STRING,
        },
    ),
    AboutTable(
        name=CUTS,
        time="made_at",
        columns={
            "made_at": LakeType.TIMESTAMPTZ,
            "cut": LakeType.STRING,
            "tag": LakeType.STRING,
            "target": LakeType.STRING,
            "snapshot_id": LakeType.LONG,
            "lsns": LakeType.MAP,
            "kept_until": LakeType.TIMESTAMPTZ,
        },
    ),
)

__all__ = ["COMMITS", "CUTS", "EVENTS", "REJECTS", "SOURCES", "TABLES", "AboutTable"]
