"""A source table as its catalog describes it."""

from __future__ import annotations

import dataclasses
import enum

from kuvasz.model import NOTHING, Relation, ReplicaIdentity, TableName


class TableKind(enum.Enum):
    """What a table is, as far as copying it goes."""

    TABLE = "table"
    PARTITIONED = "partitioned"  #: a root or an inner node: holds no rows itself
    LEAF = "leaf"  #: a partition with rows
    OTHER = "other"  #: view, foreign table, …: cannot be replicated


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A partition that holds rows."""

    oid: int
    table: TableName
    page_bytes: int
    row_estimate: int | None  #: None where the table was never analysed
    pages: int | None = None  #: of the main fork; None: not asked, see `kuvasz.source.catalog.sizes`
    toast_bytes: int | None = None
    has_policies: bool = False  #: row security hides rows from the session's role
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    file: int = 0  #: pg_relation_filenode: another one after a rewrite or a TRUNCATE
    is_logged: bool = True  #: its changes are in the write-ahead log


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A table that another one is a partition of, or a partition of a partition."""

    oid: int
    table: TableName


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """Everything kuvasz asks a catalog about one table.

    `relation` has the columns that COPY and stream carry, in ``attnum`` order: dropped ones are left out,
    generated ones are named in `generated`. Its key columns are the effective key: what the stream's old rows are
    matched by.

    Large because one look at the catalog answers all of it, of one moment; each rule reads a few of the answers.
    """

    relation: Relation
    kind: TableKind
    page_bytes: int
    row_estimate: int | None  #: with all partitions; None where one was never analysed
    primary_key: tuple[str, ...]  #: in the index's order, whether or not it is the effective key
    identity_index: tuple[str, ...]  #: columns of the index named by REPLICA IDENTITY USING INDEX, else empty
    generated: tuple[str, ...]
    leaves: tuple[Leaf, ...]  #: of a partitioned table, by name; otherwise empty
    pages: int | None = None  #: of the main forks, with all partitions; None: not asked
    toast_bytes: int | None = None  #: with all partitions
    ancestors: tuple[Ancestor, ...] = ()  #: of a partition, up to the root
    children: tuple[TableName, ...] = ()  #: that inherit from it, at any depth, and are no partitions; by name
    unique: tuple[tuple[str, ...], ...] = ()  #: columns of which, at any moment, one value is one row; by index
    why_no_key: str = ""  #: empty if there is a key; ends with the SQL that mends it
    mend: str = ""  #: that SQL alone; empty if a person has to choose columns
    can_update: bool = True  #: whether UPDATE and DELETE at the source go on working when it is published
    why_unsupported: str = ""  #: why it cannot be replicated at all; empty if it can
    is_logged: bool = True  #: its changes, and those of all partitions, are in the write-ahead log
    is_owned: bool = False  #: by the session's role, or a role it is a member of
    can_select: bool = False  #: the session's role may read all columns, of all partitions too
    unreadable: tuple[TableName, ...] = ()  #: tables and partitions for which that is not so
    has_policies: bool = False  #: row security hides rows of it, or of a partition, from the session's role
    #: the columns that its publication is to name; empty: it is to have no list, None: whatever it has stays
    column_list: tuple[str, ...] | None = None
    row_filter: str = ""  #: the condition by which its publication is to send rows; empty: all of them
    filter_mark: str = ""  #: of the row filter of kuvasz's that it has now, see `kuvasz.source.catalog.membership`
    may_filter: bool = True  #: its server has row filters (version 15)
    own_collations: frozenset[int] = NOTHING  #: attnums of columns whose collation is none of PostgreSQL's

    @property
    def table(self) -> TableName:
        """Its name."""
        return self.relation.table

    @property
    def identity(self) -> frozenset[int]:
        """The attnums of the columns that an old row is sure to have: all with REPLICA IDENTITY FULL."""
        identity = self.relation.identity
        names = self.identity_index if identity is ReplicaIdentity.INDEX else self.primary_key
        is_full = identity is ReplicaIdentity.FULL
        return frozenset(one.attnum for one in self.relation.columns if is_full or one.name in names)

    @property
    def is_whole_row(self) -> bool:
        """Whether rows are matched as a whole: REPLICA IDENTITY FULL without a key."""
        return not self.relation.key and self.can_update and self.relation.identity is ReplicaIdentity.FULL

    @property
    def bytes(self) -> int | None:
        """What it takes on the source's disk, without indexes; None: not asked."""
        if self.pages is None or self.toast_bytes is None:
            return None
        return self.pages * self.page_bytes + self.toast_bytes
