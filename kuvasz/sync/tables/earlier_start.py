"""A table that is followed from an LSN before the one at which it is taken in (`initial: from_lsn`).

Its changes from there on are in the slot that is there, if that has not passed the LSN, and if the table was
published and nothing of it was altered since: which columns an old message means is known of what the catalog shows
now alone. Whatever is not proved is refused: changes that are missing would be missing in silence.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.config.model import Initial
from kuvasz.errors import TableError, place_of
from kuvasz.source import conninfo
from kuvasz.source.catalog.table import TableKind
from kuvasz.source.check import slot_age
from kuvasz.sync.rules import keyless

if TYPE_CHECKING:
    from kuvasz.config.sources import SourceTableSpec
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.sync.context.source_context import SourceContext

_NOW = "`initial: skip` follows the table from now on, and `initial: copy` has all of it"


def lsn_of(context: SourceContext, spec: SourceTableSpec) -> int | None:
    """Return the LSN that the map has for a table of a source; None: it begins there as it is taken in."""
    if spec.config.initial is not Initial.FROM_LSN:
        return None
    named = spec.config.from_lsn or {}
    found = named.get(context.source.name, named.get(context.source.sid or context.source.database))
    return None if found is None else lsn.parse(found)


def prove(context: SourceContext, slot: str, spec: SourceTableSpec, table: SourceTable, begin: int) -> None:
    """Make sure that all changes of a table from an LSN on come in the stream; in threads, while it is held.

    Args:
        context: The context of the source.
        slot: The name of its slot, and of its publication.
        spec: The table.
        table: It, as it is now.
        begin: The LSN.

    Raises:
        TableError: Some may be missing, or nobody could tell what they mean.
        SourceError: The server does not answer.
    """
    place = f"{place_of(context.source.name, table=str(spec.table))}: from_lsn {lsn.render(begin)}"
    if context.shared.staged is not None:
        raise TableError(f"{place}: with cluster.log it is staged from now on alone", hint=_NOW)
    if table.kind is not TableKind.TABLE or table.ancestors or keyless.has_only_inserts(table):
        raise TableError(
            f"{place}: a partitioned table, a partition, or one whose INSERTs alone are published begins now alone",
            hint=_NOW,
        )
    with contextlib.closing(conninfo.connect(context.url())) as connection:
        age = slot_age.load(connection, slot, slot, table.relation.oid)
    if age is None:
        raise TableError(f"{place}: slot {slot} is gone", hint=_NOW)
    confirmed = max(age.confirmed_lsn, context.shared.progress.confirmable(context.source.name))
    if begin < confirmed:
        raise TableError(
            f"{place}: slot {slot} stands at {lsn.render(confirmed)} already, and what came before is sent no more",
            hint=f"give an LSN from there on, and let slot and publication be there before it; {_NOW}",
        )
    if begin > age.wal_lsn:
        message = f"{place}: the source's WAL ends at {lsn.render(age.wal_lsn)}"
        raise TableError(message, hint="give an LSN that it has reached; pg_current_wal_lsn() is the newest")
    if age.altered:
        raise TableError(
            f"{place}: its {', '.join(age.altered)} may have been altered since slot {slot} stood at"
            f" {lsn.render(age.confirmed_lsn)}: changes may be missing, or mean something else",
            hint=f"make slot {slot} when publication {slot} has the table, and no slot of the server is older than"
            f" that, and alter nothing since; {_NOW}",
        )


__all__ = ["lsn_of", "prove"]
