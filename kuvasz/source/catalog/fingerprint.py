"""What a copy of a table depends on, so that any change of it is seen without a row. Pure.

The server describes a table in the stream only before its next row. The patrol of `kuvasz.sync.watch.schema_watch`
therefore compares fingerprints: columns with types, defaults and what their types rest on, what keeps two rows from
having one key (another one if it was dropped and made again), the table's file (another one after a rewrite), of each
partition persistence, file and replica identity, and of a partition what it is one of. What a publication says of a
table belongs in here, too.
"""

from __future__ import annotations

import dataclasses

from kuvasz.model import Relation
from kuvasz.source.catalog.table import SourceTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Equal as long as nothing changed that a copy depends on. What changes with every row is left out."""

    relation: Relation
    key: tuple[tuple[str, ...], ...]  #: primary key and identity index
    can_update: bool
    why_unsupported: str
    generated: tuple[str, ...]
    leaves: tuple[tuple[object, ...], ...]
    ancestors: tuple[int, ...]  #: a published one has its changes sent as those of that
    row_filter: str  #: the mark of its publication's


def of(table: SourceTable) -> Fingerprint:
    """Return the fingerprint of a table as the catalog shows it."""
    return Fingerprint(
        relation=table.relation,
        key=(table.primary_key, table.identity_index),
        can_update=table.can_update,
        why_unsupported=table.why_unsupported,
        generated=table.generated,
        leaves=tuple((leaf.oid, leaf.table, leaf.file, leaf.identity, leaf.is_logged) for leaf in table.leaves),
        ancestors=tuple(ancestor.oid for ancestor in table.ancestors),
        row_filter=table.filter_mark,
    )


__all__ = ["Fingerprint", "of"]
