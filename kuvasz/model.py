"""Values that cross stages. Frozen, slotted, keyword-only; nobody changes what it received.

Words: a *source* is one database that is replicated; a *relation* is a source table as the stream describes it;
a *target* is an Iceberg table; a *segment* is a run of raw row messages of one relation; a *delivery* is what a
reader hands to a worker; a *position* says how far a source is in a target.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from typing_extensions import override

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# As text, for verbs that read the map and see no row need no NumPy.
UInt8s: TypeAlias = "npt.NDArray[np.uint8]"
UInt32s: TypeAlias = "npt.NDArray[np.uint32]"
UInt64s: TypeAlias = "npt.NDArray[np.uint64]"
Int32s: TypeAlias = "npt.NDArray[np.int32]"
Int64s: TypeAlias = "npt.NDArray[np.int64]"

#: 2000-01-01 UTC, from which PostgreSQL counts, in µs since 1970-01-01 UTC, from which Iceberg does.
POSTGRES_EPOCH_US = 946_684_800_000_000

#: The empty set where every table of every source has one: Python makes each anew, of 216 bytes.
NOTHING: Final[frozenset[Any]] = frozenset()


class TableType(enum.StrEnum):
    """What a target makes of its source's changes."""

    CLONE = "clone"
    APPEND = "append"
    HISTORY = "history"
    CHANGELOG = "changelog"

    @property
    def is_comparable(self) -> bool:
        """Whether it shows what its source has now, so that it can be compared with that and made equal."""
        return self in {TableType.CLONE, TableType.HISTORY}


class LakeType(enum.Enum):
    """The Iceberg type a value has in the lake (Iceberg spec, "Primitive Types" and "Nested Types")."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    LIST = "list"
    MAP = "map"  #: string to string


#: Bits of a real's significand. Its text is the shortest that gives the real again, and as a double another number.
REAL_BITS = 24


class Wire(enum.Enum):
    """The text syntax PostgreSQL sends a value in; it decides the parser, `LakeType` decides what is built."""

    TEXT = "text"
    BOOL = "bool"  #: t or f
    INTEGER = "integer"
    FLOAT = "float"  #: shortest round-trip form, NaN, Infinity, -Infinity
    NUMERIC = "numeric"
    HEX = "hex"  #: bytea with bytea_output=hex: \\x00ff
    BARE_HEX = "bare_hex"  #: PostGIS: 0101000000…
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    ARRAY = "array"  #: {1,NULL,"a b"}
    HSTORE = "hstore"  #: "a"=>"1", "b"=>NULL
    VECTOR = "vector"  #: pgvector: [1,2.5]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """How one column travels: `wire` text in, `kind` out."""

    kind: LakeType
    wire: Wire = Wire.TEXT
    precision: int = 0  #: of a DECIMAL; `REAL_BITS` of a DOUBLE whose text is that of a real
    scale: int = 0  #: of a DECIMAL
    element: ValueType | None = None  #: of a LIST
    delimiter: str = ","  #: between array elements (pg_type.typdelim)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    """One row of ``pg_type`` as the type map needs it (manual, section 53.64 "pg_type")."""

    oid: int
    name: str
    schema: str = "pg_catalog"
    category: str = "b"  #: typtype: b base, c composite, d domain, e enum, r range, m multirange, p pseudo
    element: PgType | None = None  #: of a true array type
    base: PgType | None = None  #: of a domain: its immediate base
    base_typmod: int = -1  #: of a domain
    delimiter: str = ","  #: typdelim of an array's *element* type, kept on the array


#: Begins a `Column.missing` that is no value, but a digest of one that is long: no text of PostgreSQL has this byte.
LONG: Final = "\0"

#: Begins one that is what is to be noted of it, for the lake is not to show the value.
HIDDEN: Final = "\0\0"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a relation, in the order of the wire."""

    name: str
    pg_type: PgType
    typmod: int = -1
    is_key: bool = False  #: part of the key that identifies a row (primary key or replica identity)
    attnum: int = 0  #: pg_attribute.attnum; 0 where only the stream has been seen
    is_nullable: bool = True
    has_default: bool = False  #: a default, an identity, or values for the rows that were there before it
    is_grid: bool = False  #: declared as an array of several dimensions; the stream does not say so
    #: pg_attribute.attmissingval: what rows have that were there before it, see `LONG` and `HIDDEN`; None: NULL
    missing: str | None = None
    facts: tuple[
        str, ...
    ] = ()  #: what its type rests on, see `kuvasz.source.catalog.type_facts`; empty in the stream
    asked: str = ""  #: the type the map has it be in the lake, ``string`` or ``decimal(p,s)``; empty: its own
    veil: str = ""  #: what was done to its values before they were kept, see `kuvasz.modes.veil`; empty: nothing


class ReplicaIdentity(enum.Enum):
    """``pg_class.relreplident``, as the Relation message carries it (manual, section 55.9)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A source table's name as PostgreSQL has it, unquoted."""

    schema: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """When a catalog was looked at: what of the WAL it showed.

    A transaction whose commit record starts before `lsn` was visible, unless it is in `running`; one whose record
    starts at or after `until` was not.
    """

    lsn: int
    until: int
    running: frozenset[int] = NOTHING  #: xids that were not over, whatever the WAL says of them


class Uniqueness(NamedTuple):
    """What keeps two rows from having one key, by what the catalog calls it; all 0: nothing, or not known.

    Names of columns do not tell a key from one that was dropped and made again, between which several rows may have
    had one value.
    """

    constraint: int = 0  #: OID in pg_constraint, the same after any REINDEX; 0 for an index without one
    index_oid: int = 0  #: the same after CLUSTER and VACUUM FULL
    file: int = 0  #: of the index, which ALTER TYPE leaves to the next index if values stay; 0 if partitioned

    def lapsed(self, now: Uniqueness) -> bool:
        """Whether a later look shows another one, so that there may have been none between the two."""
        is_known = bool(self.index_oid and now.index_oid)
        return is_known and not any(before and before == after for before, after in zip(self, now, strict=True))


#: Nothing keeps rows apart, or nobody knows what does.
UNPROVED = Uniqueness()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A source table's shape: what catalog or stream say of it."""

    oid: int
    table: TableName
    identity: ReplicaIdentity
    columns: tuple[Column, ...]
    file: int = 0  #: pg_relation_filenode: another one after a rewrite; 0 in the stream and for partitioned tables
    attributes: int = 0  #: pg_class.relnatts: the highest attnum so far; 0 in the stream
    dropped: tuple[int, ...] = ()  #: attnums of columns that are gone; empty in the stream
    leaf_files: int = 0  #: of a partitioned table: a number for its partitions and their files; else 0
    generated: tuple[Column, ...] = ()  #: columns that COPY leaves out; empty in the stream
    sent: tuple[int, ...] | None = None  #: attnums that its messages have, if a publication says so; None: `columns`
    list_version: int = 0  #: of the publication's row that says so (xmin); 0 if there is none
    #: xmin of its columns' rows in pg_attribute, by attnum from 1 on, see `version_of`; empty in the stream. They are
    #: not in the columns, which are one object for all sources that are alike: each has numbers of its own
    versions: tuple[int, ...] = ()
    uniqueness: Uniqueness = UNPROVED  #: of its key; nothing in the stream
    described_lsn: int = 0  #: in the stream: commit LSN of the transaction in which the message came, if that counts
    seen: Seen | None = dataclasses.field(default=None, compare=False)  #: when the catalog showed it

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key columns, in column order."""
        return tuple(column.name for column in self.columns if column.is_key)

    def version_of(self, column: Column) -> int:
        """Return the version of a column's row in pg_attribute: another one after ALTER COLUMN; 0 in the stream."""
        return self.versions[column.attnum - 1] if 0 < column.attnum <= len(self.versions) else 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """How far one source is in one target.

    Everything that committed *before* `lsn` is in the target, nothing else is: a transaction whose commit record
    starts at or after `lsn` is still to be applied. It is the end LSN of the last transaction applied, or the
    consistent point of the snapshot that was copied. `commit_lsn` and `rows` name that transaction and count its
    row messages for this target (0 for a copy); a transaction is applied whole or not at all.
    """

    lsn: int
    commit_lsn: int = 0
    rows: int = 0
    system_id: str = ""  #: of the source's cluster (pg_control_system), so that another one is never taken for it
    history: int = (
        0  #: of the source's pasts, which the LSNs belong to: each slot begins another; 0: before they counted
    )
    xid: int = 0  #: of that transaction, 0 if not known: with its time it proves that a source has it
    commit_us: int = 0  #: when it committed, µs since 2000-01-01 UTC
    #: of a copy that no transaction has followed: when its server was started, µs since 1970 UTC
    started_us: int = 0
    taken_us: int = 0  #: of a snapshot to be copied: by the source's clock, µs since 1970 UTC; not stored
    #: of a snapshot to be copied: by which catalog rows the table was published before it was taken
    #: (`kuvasz.source.catalog.membership`); stored beside the position (`kuvasz.ports.SourceNotes.published`)
    published: str = ""
    #: of a copy that left out the rows there were (`initial: skip`); stored beside the position
    #: (`kuvasz.ports.SourceNotes.skipped`)
    is_skip: bool = False


class Applied(NamedTuple):
    """A transaction that the lake has. A source that sends what comes after it must have it, too."""

    commit_lsn: int
    xid: int = 0  #: 0: not known
    commit_us: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """The transactions a segment's rows belong to, in commit order; k arrays of one length."""

    commit_lsn: UInt64s  #: start of the commit record (Begin's final_lsn)
    end_lsn: UInt64s  #: end of the commit record; equal to commit_lsn + 1 while the Commit message is still to come
    commit_us: Int64s  #: commit time, µs since 2000-01-01 UTC
    xid: UInt32s
    row_end: UInt32s  #: index one past the transaction's last row in the segment


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Row messages (Insert, Update, Delete) of one relation of one source, in stream order.

    `data` holds the pgoutput messages one after another, each from its tag byte on, without XLogData headers.
    """

    source: str
    relation: Relation
    data: bytes | bytearray
    lengths: UInt32s  #: bytes of each message; they sum to len(data)
    transactions: Transactions


class Operations(NamedTuple):
    """How many row messages there are of each kind."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    def plus(self, other: Operations) -> Operations:
        """Return the sums."""
        return Operations(*(mine + more for mine, more in zip(self, other, strict=True)))


NO_OPERATIONS = Operations()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A TRUNCATE of one relation, in its place among the segments."""

    source: str
    relation: Relation
    commit_lsn: int
    end_lsn: int
    commit_us: int
    xid: int
    ordinal: int = 0  #: number of this event in its transaction for the relation; known once it is cut into chunks
    others: tuple[Truncation, ...] = ()  #: later ones that are rows of the same file where a TRUNCATE is a row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Marks a delivery that comes from a parking log, for one target alone."""

    target: str
    number: int  #: of the replay; only the last one begun counts
    end: int  #: offset in the log behind what was delivered


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a reader hands to one worker: everything for its targets from whole transactions of one source.

    `changes` keeps stream order per relation. With `is_open` the last transaction goes on in the next delivery
    (it outgrew the memory budget) and `through` ends before it.
    """

    source: str
    changes: tuple[Segment | Truncation, ...]
    through: int  #: end LSN of the last whole transaction delivered
    bytes: int
    epoch: int = 0  #: number of the reader's connection; a new one means that open transactions begin again
    is_open: bool = False
    replay: Replay | None = None
