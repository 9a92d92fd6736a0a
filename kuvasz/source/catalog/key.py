"""Which columns identify a row of a source table, and what to do when none do.

Pure decisions over what the catalog says; `kuvasz.source.catalog.introspect` asks it. The rule (manual, section
29.1.1 "Replica Identity"): the old key in the stream has the columns of the replica identity, so they are the key
that rows are matched by. DEFAULT is the primary key, INDEX the chosen index, FULL the whole old row, from which the
primary key can be taken; NOTHING, or an identity whose index is gone, makes the server refuse UPDATE and DELETE as
soon as the table is published for them.

A deferrable key is none: two rows may hold the same value inside a transaction, so the last change of a key is not
its final state. The server takes none for a replica identity either (``RelationGetIndexList`` in relcache.c).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.model import UNPROVED, ReplicaIdentity, TableName, Uniqueness
from kuvasz.source import sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UniqueIndex:
    """A unique index: one row of ``pg_index`` (manual, section 53.26)."""

    name: str
    columns: tuple[str, ...]  #: the key columns, without INCLUDE; "" stands for an expression
    is_primary: bool = False
    is_identity: bool = False  #: indisreplident
    is_immediate: bool = True
    is_valid: bool = True
    is_partial: bool = False
    is_not_null: bool = True  #: every column is
    has_generated: bool = False  #: a column is generated, and so is not in the stream
    uniqueness: Uniqueness = UNPROVED  #: that it is

    @property
    def is_stable(self) -> bool:
        """Whether at any moment one value of the columns is one row, but for NULLs."""
        return self.is_immediate and self.is_valid and not self.is_partial and "" not in self.columns

    @property
    def is_usable(self) -> bool:
        """Whether the columns can be a replica identity whose values the stream carries."""
        return self.is_stable and self.is_not_null and not self.has_generated


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The columns that identify a row, or why there are none."""

    columns: tuple[str, ...] = ()  #: in the index's order
    uniqueness: Uniqueness = UNPROVED  #: of the index
    why_not: str = ""  #: ends with the SQL that mends it
    mend: str = ""
    can_update: bool = True  #: whether UPDATE and DELETE go on working when the table is published for them


def decide(
    table: TableName, identity: ReplicaIdentity, indexes: Sequence[UniqueIndex], unsent: Sequence[str] = ()
) -> Key:
    """Return the key of one table or partition.

    Args:
        table: Its name.
        identity: As the catalog has it.
        indexes: Its unique indexes.
        unsent: Generated columns that no publication sends: with REPLICA IDENTITY FULL the server refuses UPDATE and
            DELETE for them (from version 18 on), as soon as the table is published for these.
    """
    primary = next((index for index in indexes if index.is_primary), None)
    if identity is ReplicaIdentity.FULL:
        if unsent:
            return _with_unsent(table, indexes, unsent)
        if primary is not None and primary.is_usable:
            return Key(columns=primary.columns, uniqueness=primary.uniqueness)
        why = "it has REPLICA IDENTITY FULL and no usable primary key, so a row is matched as a whole"
        return _without(table, why, identity, indexes, can_update=True)
    chosen = _chosen(identity, indexes)
    if chosen is None:
        return _without(table, _why_none(identity, primary), identity, indexes, unsent, can_update=False)
    if not chosen.is_usable:
        why, can_update = _why_unusable(chosen), not chosen.has_generated
        return _without(table, why, identity, indexes, unsent, can_update=can_update)
    return Key(columns=chosen.columns, uniqueness=chosen.uniqueness)


def differs(root: Key, identity: ReplicaIdentity, leaf: Key, leaf_identity: ReplicaIdentity) -> bool:
    """Return whether a partition's changes are logged otherwise than the stream says they are.

    Published under its root, a partition's change carries the root's identity in name, but the old row as the
    partition's own identity has logged it; ``ALTER TABLE … REPLICA IDENTITY`` on a root does not reach its
    partitions. A partition that logs more than the root says is no harm, if its UPDATEs do not fail for that.
    """
    if leaf_identity is ReplicaIdentity.FULL:
        return not leaf.can_update
    if identity is ReplicaIdentity.FULL:
        return True
    return not leaf.can_update or set(leaf.columns) != set(root.columns)


def align(table: TableName, indexes: Sequence[UniqueIndex], columns: Iterable[str]) -> str:
    """Return the SQL that makes a partition log the old values of `columns`."""
    wanted = set(columns)
    for index in indexes:
        if wanted and index.is_usable and set(index.columns) == wanted:
            return _use(table, index)
    return f"ALTER TABLE {sql.qualified(table)} REPLICA IDENTITY FULL;"


def _chosen(identity: ReplicaIdentity, indexes: Sequence[UniqueIndex]) -> UniqueIndex | None:
    if identity is ReplicaIdentity.DEFAULT:
        return next((index for index in indexes if index.is_primary and index.is_immediate), None)
    if identity is ReplicaIdentity.INDEX:
        return next((index for index in indexes if index.is_identity), None)
    return None


def _why_none(identity: ReplicaIdentity, primary: UniqueIndex | None) -> str:
    if identity is ReplicaIdentity.NOTHING:
        return "it has REPLICA IDENTITY NOTHING"
    if identity is ReplicaIdentity.INDEX:
        return "the index of its REPLICA IDENTITY was dropped"
    return "it has no primary key" if primary is None else "its primary key is deferrable"


def _why_unusable(index: UniqueIndex) -> str:
    if index.has_generated:
        return f"its key {index.name} has a generated column, which the stream does not carry"
    return f"its replica identity {index.name} is not a valid, immediate unique index over NOT NULL columns"


def _with_unsent(table: TableName, indexes: Sequence[UniqueIndex], unsent: Sequence[str]) -> Key:
    """Return what becomes of REPLICA IDENTITY FULL where it has columns that are not sent."""
    mend = _mend(table, ReplicaIdentity.NOTHING, indexes)
    why = (
        f"it has REPLICA IDENTITY FULL and the generated column {', '.join(unsent)}, which is not published, so its"
        " UPDATEs and DELETEs would fail"
    )
    return Key(why_not=f"{why}; {mend or _another_key(table)}", mend=mend, can_update=False)


def _another_key(table: TableName) -> str:
    name = sql.qualified(table)
    return f"ALTER TABLE {name} ADD PRIMARY KEY (…), REPLICA IDENTITY DEFAULT over the columns that identify a row"


def _without(
    table: TableName,
    why: str,
    identity: ReplicaIdentity,
    indexes: Sequence[UniqueIndex],
    unsent: Sequence[str] = (),
    *,
    can_update: bool,
) -> Key:
    mend = _mend(table, identity, indexes)
    if not mend and unsent:
        return Key(why_not=f"{why}; {_another_key(table)}", can_update=can_update)
    note = ""
    if not mend:
        note = f" or ALTER TABLE {sql.qualified(table)} ADD PRIMARY KEY (…) over the columns that identify a row"
        mend = f"ALTER TABLE {sql.qualified(table)} REPLICA IDENTITY FULL;"
        if identity is ReplicaIdentity.FULL:
            mend, note = "", note.removeprefix(" or ")
    return Key(why_not=f"{why}; {mend}{note}", mend=mend, can_update=can_update)


def _mend(table: TableName, identity: ReplicaIdentity, indexes: Sequence[UniqueIndex]) -> str:
    usable = [index for index in indexes if index.is_usable]
    if usable:
        return _use(table, min(usable, key=lambda index: (not index.is_primary, len(index.columns), index.name)))
    nearly = [index for index in indexes if index.is_stable and not index.has_generated]
    if nearly and identity is not ReplicaIdentity.FULL:
        index = min(nearly, key=lambda index: (len(index.columns), index.name))
        name = sql.qualified(table)
        changes = ", ".join(f"ALTER COLUMN {sql.identifier(column)} SET NOT NULL" for column in index.columns)
        return f"ALTER TABLE {name} {changes}; {_use(table, index)}"
    return ""


def _use(table: TableName, index: UniqueIndex) -> str:
    how = "DEFAULT" if index.is_primary else f"USING INDEX {sql.identifier(index.name)}"
    return f"ALTER TABLE {sql.qualified(table)} REPLICA IDENTITY {how};"
