"""The seams: what a stage may ask of its neighbour, and what the words mean.

*Routed*: handed to a worker's inbox, in memory. *Written*: in data files that no snapshot knows yet. *Durable*: in
a committed Iceberg snapshot together with its position. Only what is durable in every worker that was given a part
of it may be confirmed to a source, or, with a staged log (`kuvasz.staging`), to that in the source's place.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kuvasz.errors import KuvaszError, LakeError, place_of
from kuvasz.evolve.known import SourceColumns
from kuvasz.model import (
    NOTHING,
    Delivery,
    Operations,
    Relation,
    Segment,
    SourcePosition,
    TableName,
    TableType,
    Truncation,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Inbox(Protocol):
    """Where a reader leaves deliveries for one worker. Safe to call from any thread, never blocks."""

    def put(self, *deliveries: Delivery) -> None:
        """Take deliveries. Their bytes count against the memory budget until the worker has made it durable."""


class Routes(Protocol):
    """Says which worker applies a relation's changes."""

    def worker(self, source: str, relation: Relation) -> int | None:
        """Return the worker's number, or None if the map has no target for this relation: its rows are ignored.

        Called at every Relation message, so also after each reconnect and whenever the relation's shape changed.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One table of the lake as the map wants it.

    Large because the map has so many options of a table: each field is one of them, or follows from some.
    """

    name: str  #: `namespace.table`
    has_sid: bool = False  #: rows carry the column ``sid``, which is part of the key
    has_members: bool = False  #: several tables of a source feed it, each under a name of its own
    types: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  #: source column -> ``string``, ``decimal(p,s)``
    out_of_range: str = "error"  #: or ``null`` or ``clamp``
    rejects: bool = False  #: rows that do not fit are kept elsewhere, and the others go on
    keeps_earlier: bool = False  #: of a clone, the versions before such rows stay
    is_soft: bool = False  #: of a clone, rows that are deleted stay, with the time of it
    filter: str | None = None  #: Spark SQL over the source's columns: rows for which it is not true are left out
    set: Mapping[str, str] | None = (
        None  #: the target's columns -> Spark SQL over the source's; None: all as they are
    )
    dialect: str = ""  #: settings of Spark by which `filter` and `set` give other values than without; empty: none
    #: target column -> ``hmac``, ``hmac:name`` or ``redact``
    mask: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mask_secret: bytes = dataclasses.field(default=b"", repr=False)
    key: tuple[str, ...] | None = None  #: the columns that identify a row, if the map names them; with `set`, of it
    place: str = ""  #: where the map has it, for messages
    columns: frozenset[str] | None = None  #: the only source columns to take; None: all
    exclude: frozenset[str] = NOTHING  #: source columns to leave out
    partition_by: tuple[str, ...] = ()  #: as in the map
    sort_by: tuple[str, ...] = ()
    on_schema_change: str = "evolve"  #: or ``agree``, ``hold`` or ``stop``
    group: str | None = None  #: all targets of which change in one commit; None: it is committed on its own
    location: str | None = None  #: where its files lie, with a scheme; None: where the catalog has them
    branch: str = "main"  #: that is written; readers see `main`
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: Iceberg's, that a person wants
    #: option of `maintenance` -> what the map says of it for this table alone
    maintenance: Mapping[str, object] = dataclasses.field(default_factory=dict)
    keeps_rows: bool = False  #: a person agreed that rows which another rule made stay beside those to come

    def takes(self, column: str) -> bool:
        """Say whether a source's column is to be in the lake."""
        return column not in self.exclude and (self.columns is None or column in self.columns)

    @property
    def is_hiding(self) -> bool:
        """Whether the sources send what the lake is not to show: columns, values of columns, or rows."""
        return bool(self.mask or self.exclude or self.columns is not None or self.filter or self.set)

    def may_read(self, column: str) -> bool:
        """Whether the filter may read a source's column: it has its name in it, in whatever case, or a star."""
        text = self.filter
        if text is None:
            return False
        quoted = column.replace("`", "``")
        return "*" in text or quoted.casefold() in text.casefold() or quoted.upper() in text.upper()

    type: TableType = TableType.CLONE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One source table that feeds a target."""

    target: str
    source: str  #: or `kuvasz.config.names.member_name`, for one of several tables that are one target
    sid: str | None
    table: TableName
    is_own_alone: bool = False  #: its stream leaves out what came to its database by replication

    @property
    def place(self) -> str:
        """Where an error is."""
        return place_of(self.source, self.table)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableWork:
    """What one mini-transaction holds for one target.

    Per source the changes are in commit order and made of whole transactions, except that the last one of a source
    in `open_sources` goes on in later work.
    """

    target: str
    changes: tuple[Segment | Truncation, ...]
    through: Mapping[str, int]  #: source -> LSN up to which this target has everything with this work
    open_sources: frozenset[str] = frozenset()
    abandoned: frozenset[str] = frozenset()  #: sources whose unfinished transaction begins again: forget its parts

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be done."""
        return not (self.changes or self.through or self.open_sources or self.abandoned)

    def without(self, sources: Collection[str]) -> TableWork:
        """Return the work of all sources but some."""
        if not sources:
            return self
        return dataclasses.replace(
            self,
            changes=tuple(change for change in self.changes if change.source not in sources),
            through={source: lsn for source, lsn in self.through.items() if source not in sources},
            open_sources=self.open_sources - frozenset(sources),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A target's changes are durable, with these positions."""

    target: str
    positions: Mapping[str, SourcePosition]  #: of the sources that had changes
    rows: int  #: row messages applied
    snapshot_id: int | None  #: None if the changes cancelled out and nothing had to be committed
    is_first: bool = True  #: of those whose changes became visible with this snapshot
    rows_of: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: `rows`, source by source
    bytes_of: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: what these had on the wire
    operations_of: Mapping[str, Operations] = dataclasses.field(default_factory=dict)  #: the same by kind
    commit_us: int = 0  #: newest commit time at a source among the rows, µs since 2000-01-01 UTC
    missing: int = 0  #: updates of rows that were not there and were inserted
    rejected: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: source -> rows that did not fit
    seconds: float = 0.0  #: the commit alone


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A target's changes were not applied and nothing of them is visible: of one source, or of all that feed it."""

    target: str
    error: KuvaszError
    source: str | None = None  #: whose they are; None: of all its sources


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A target's commit takes long; others were not to wait for it. Later ones of the target come behind it."""

    target: str
    outcome: concurrent.futures.Future[tuple[Receipt | Failure, ...]]  #: empty: the target had failed before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The files of one table, as maintenance last saw them, and what it did since the start."""

    target: str
    files: int  #: live data files
    bytes: int  #: of them
    rows: int  #: in them, dead ones included
    dead_rows: int
    delete_files: int  #: data files with deleted rows: deletion vectors, or position delete files
    snapshots: int | None  #: None while not known
    rewrites: int  #: commits that only exchanged files
    last_at: float | None  #: unix seconds of the last of them
    next_at: float | None  #: unix seconds of the next look; None: maintenance is off
    changed_bytes: int  #: written by the stream and by copies
    rewritten_bytes: int  #: written by maintenance
    error: str | None = None  #: of the last look

    @property
    def is_failing(self) -> bool:
        """Whether the last look failed."""
        return self.error is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A part of a source's changes that is lost to a target; see `Lake.repair`."""

    from_lsn: int  #: the source's position when its stream was lost, or where it had last been heard without a gap
    noticed_us: int  #: when that was found out, µs since 1970-01-01 UTC, by the clock here
    to_lsn: int = 0  #: of the snapshot that the target was repaired from; 0: it is open
    until_us: int = 0  #: when that was, µs since 1970-01-01 UTC, by the source's clock

    @property
    def is_open(self) -> bool:
        """Whether the target was not repaired yet."""
        return not self.to_lsn


#: Bytes at the source, up to which a table is small: many of them are copied at a time, without Spark.
SMALL_COPY_BYTES: Final = 1 << 20


class CopyTooLarge(Exception):
    """More came of a request than its reader wants."""


class CopyRequest(Protocol):
    """A picklable part of a source table, read on an executor, or by whoever copies it if it is small."""

    @property
    def size(self) -> int:
        """Bytes at the source, about."""

    @property
    def server(self) -> str:
        """Where it is read, ``host:port``: what is limited is so for each server."""

    def at_pace(self, rows_per_second: float) -> CopyRequest:
        """Return the same request, to be read no faster."""

    def hurried(self) -> CopyRequest:
        """Return the same request for a core that others need: if it comes slowly, reading it raises `SourceSlow`."""

    def bounded(self, most_bytes: int) -> CopyRequest:
        """Return the same request, of which nobody wants more: reading raises `CopyTooLarge` when it came."""

    def read(self, chunk_bytes: int) -> Iterator[bytes | bytearray | memoryview]:
        """Yield COPY text of whole rows, about `chunk_bytes` at a time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeColumn:
    """A column of a target, as the lake has it."""

    field_id: int
    name: str
    type: str  #: as Iceberg calls it


class CopyPace(Protocol):
    """How much of a source may be read for one copy, and when. From any thread."""

    def limits(self) -> tuple[int | None, int | None]:
        """Return the rows a second and the sessions that all copies from the server may take as of now; None: any."""

    def wait(self) -> None:
        """Return when another request may be read; what it raises ends the copy."""

    @property
    def is_slow(self) -> bool:
        """Whether its rows came slowly when they were read last."""

    def note_slow(self, *, is_slow: bool) -> None:
        """Take note that rows come slowly, and are read where nobody waits for them; or that they no more do."""


class AnyPace:
    """The pace of a copy that nothing holds back."""

    is_slow = False

    def limits(self) -> tuple[int | None, int | None]:
        """See `CopyPace.limits`."""
        return None, None

    def wait(self) -> None:
        """See `CopyPace.wait`."""

    def note_slow(self, *, is_slow: bool) -> None:
        """See `CopyPace.note_slow`."""


#: For a copy that nothing holds back.
ANY_PACE: Final = AnyPace()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierParts:
    """What an earlier attempt at a copy has left, and how to find out what is not so any more."""

    made_for: str  #: see `CopyLedger.begin`
    parts: Mapping[int, str]  #: number of a request -> see `CopyLedger.note`
    #: all changes of the table whose transactions the earliest of the attempts did not see, and this copy sees; once
    changes: Iterable[Segment | Truncation]
    #: returns what reads, as this copy sees them, the rows with some values of some columns of the source
    look_up: Callable[[Sequence[str], Sequence[tuple[str, ...]]], CopyRequest]


class CopyLedger(Protocol):
    """What is finished of one copy, so that a later attempt goes on from there. From any thread."""

    earlier: EarlierParts | None  #: None: there was no attempt that this one can go on from

    def begin(self, made_for: str, why: str = "") -> None:
        """Begin a copy that uses nothing of an earlier one.

        Args:
            made_for: What its files are made for: they are of no use for anything else.
            why: Why what an earlier attempt has left is of no use; empty where there was none.

        Raises:
            SourceError: What was noted before may still be there.
        """

    def go_on(self, keys: int) -> None:
        """Go on from what an earlier attempt has left, but for the rows of so many keys."""

    def note(self, number: int, made: str) -> None:
        """Note what was made of a request, and can be found again by a later attempt; durable when this returns."""

    def close(self) -> None:
        """Forget all of it, for good: what was made is about to become visible.

        Raises:
            SourceError: It may still be there.
        """

    def reopen(self) -> None:
        """Note all of it again: it did not become visible, and never will by itself."""


class SourceNotes(Protocol):
    """What a lake remembers of each source's table in a target, beside rows and position. Calls block.

    The target was prepared or attached.
    """

    def columns(self, target: str, source: str) -> SourceColumns | None:
        """Return what is remembered of a source's columns; None if nothing is, or the target is not attached."""

    def oid(self, target: str, source: str) -> int | None:
        """Return the OID that `columns` has of the source's table: what a patrol asks of thousands; None as there."""
        known = self.columns(target, source)
        return None if known is None else known.oid

    def lake_columns(self, target: str) -> Sequence[LakeColumn]:  # noqa: ARG002 (of those that do say)
        """Return the columns that a target has; nothing while it is not known, or of a lake that does not say."""
        return ()

    def partitions(self, target: str, source: str) -> frozenset[str] | None:
        """Return what `remember_partitions` was told last of a source's table; None: nothing yet."""

    def remember_partitions(self, target: str, source: str, partitions: frozenset[str]) -> None:
        """Store by what names a source's table has its partitions, of which the target has all rows.

        Raises:
            LakeError: Catalog or storage failed.
        """

    def published(self, target: str, source: str) -> str | None:
        """Return by which catalog rows a source's table was published since its rows are here; None: nobody said."""

    def published_of(self, target: str, sources: Sequence[str]) -> Mapping[str, str | None]:
        """Return what `published` says of several sources' tables, by source: a target may have thousands."""
        return {source: self.published(target, source) for source in sources}

    def remember_published(self, target: str, source: str, published: str) -> None:
        """Store how a table is published, where a copy did not ask; a copy and a repair bring it with the position.

        Raises:
            LakeError: Catalog or storage failed.
        """

    def skipped(self, target: str, source: str) -> bool:  # noqa: ARG002 (of those that note it)
        """Whether a target lacks what a source's table had when it was taken in, as `SourcePosition.is_skip` says."""
        return False

    def parked(self, target: str, source: str) -> str | None:
        """Return the id of the log that holds what a target lacks of a source; None: it lacks nothing."""

    def park(self, target: str, source: str, log_id: str | None) -> None:
        """Store a log's id, before anything that is only in that log is confirmed; None: it has been replayed.

        Without it nobody could tell that the log was lost: a position may lie far back because nothing happened.

        Raises:
            TableGone: Someone dropped the target from the lake.
            LakeError: Catalog or storage failed.
        """

    def gap(self, target: str, source: str) -> Gap | None:
        """Return the gap that is open between a source and a prepared target; None: there is none."""


class Maintenance(Protocol):
    """The files of a lake's tables, looked after beside the stream."""

    def upkeep(self) -> Mapping[str, Upkeep]:
        """Return the state of the files of each target that was looked at."""

    def run(self, target: str, *, full: bool) -> Upkeep | None:
        """Look after the files of a prepared target now; None if there is nothing to look after. Blocks.

        Args:
            target: The name of the target.
            full: Leave no dead row and no delete file, whatever it costs.

        Raises:
            KuvaszError: It could not be done; the table is right all the same.
        """


class About(Protocol):
    """What a lake is told of kuvasz, for tables of its own (`lake.about`). Safe from any thread, and never waits."""

    namespace: str | None  #: where they are; None: there are none, and whatever is told goes nowhere

    def tell(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Take rows for one of the tables; what finds no room is counted and told, and lost.

        Args:
            table: Its name in the namespace.
            rows: Column -> value; a column that is missing is NULL.
        """

    def write(self, table: str) -> None:
        """Write what one of the tables was told, before this returns. Blocks; what cannot be written is tried later.

        Args:
            table: Its name in the namespace.
        """

    def committed(self, receipt: Receipt) -> None:
        """Take what is known of a commit besides what its snapshot says."""

    def standing(self) -> Mapping[str, object]:
        """Return target -> something that is another one once a commit came, of all tables that are loaded."""

    def commits_after(self, target: str, seen: str | None, most: int) -> tuple[list[Mapping[str, Any]], str, int]:
        """Return what is known of a target's next commits, oldest first, wherever else it is kept. Blocks.

        Args:
            target: The name of the target.
            seen: What was returned before with the last one of interest; None: from the first one that is there.
            most: How many rows come back, at the most.

        Returns:
            Rows as the table of commits has them, what they were seen with, and how many before them are gone.

        Raises:
            LakeError: The catalog failed.
        """

    def keep_rejected(self, target: str, rows: pa.Table) -> None:
        """Write rows down that were left out of a target, before this returns; a row may come twice. Blocks.

        Args:
            target: The name of the target.
            rows: See `kuvasz.modes.rejects.RECORD`.

        Raises:
            LakeError: Catalog or store failed; they may be there all the same.
        """


class Tags(Protocol):
    """Names for what tables show at a moment. Calls block."""

    def add(self, target: str, name: str, keep_s: float) -> int | None:
        """Name the snapshot that a prepared target shows now; return its id, None if nothing was ever written.

        Args:
            target: The name of the target.
            name: The tag's; there is none of that name.
            keep_s: For how long the snapshot is kept at least.

        Raises:
            LakeError: Catalog or storage failed, or there is such a tag.
        """

    def remove(self, target: str, name: str) -> None:
        """Remove a tag.

        Raises:
            LakeError: Catalog or storage failed.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What main shows of a table before and after its branch is published."""

    branch: str  #: that is written
    before: int | None  #: the snapshot; None: there was none
    after: int | None


class Branches(Protocol):
    """Branches of tables that are written, and shown by main. Calls block."""

    def publish(self, target: str, tag: str | None = None, *, is_trial: bool = False) -> Published:
        """Have main show what a table has on the branch that is written, if nothing of main is lost by it.

        Args:
            target: The name of the target; it need not be prepared.
            tag: The name of a snapshot of the branch; None: its newest.
            is_trial: Change nothing, and say what would be.

        Raises:
            LakeError: Main itself is written, or has something that is not in what would be published; there is no
                such tag; or catalog or storage failed.
        """


class Lake(Protocol):
    """The lake. Calls block; every target is used by one caller at a time, different targets side by side.

    Large because it is all that the pipeline may ask of a destination.
    """

    notes: SourceNotes  #: what it remembers of sources' tables beside their rows
    maintenance: Maintenance  #: of its tables' files
    about: About  #: is told what it keeps of kuvasz itself
    tags: Tags  #: of its tables
    branches: Branches  #: of its tables

    @property
    def commit_conflicts(self) -> int:
        """Commits that met another writer's and were made again, since the start."""

    def open(self) -> None:
        """Reach catalog and storage and get ready for the first changes.

        Raises:
            LakeError: They cannot be reached or written.
        """

    def why_dead(self) -> LakeError | None:
        """Say why nothing can be committed any more in this process; None while something can."""

    @property
    def session(self) -> Any:  # noqa: ANN401 (Spark's, which is known to `lake` alone)
        """The Spark in which tables can be compared with their sources beside all else; None: they cannot be."""
        return None

    @property
    def resumes_copies(self) -> bool:
        """Whether a copy can go on from the parts that one before it, of another process, has finished."""
        return False

    def renew(self, properties: Mapping[str, str]) -> None:
        """Reach the catalog with other credentials from now on: with those in these properties, as the map has them.

        Whatever is connected goes on as it is.

        Raises:
            LakeError: The catalog does not answer by them, or cannot be given other ones: those before count.
        """
        del properties  # of a lake that has no such catalog

    def patrol(self) -> Sequence[Failure]:
        """Look at the targets as others may have left them since their last commits.

        Returns:
            Those that someone set back, or dropped. Of one that cannot be asked for now nothing is said; a lake that
            nobody else can write has none.
        """
        return ()

    def prepare(
        self,
        target: Target,
        feed: Feed,
        relation: Relation,
        *,
        is_streaming: bool = False,
        since: float | None = None,
    ) -> Sequence[str]:
        """Create the target, or make it follow what changed at the source; see docs/schema-changes.md.

        The source's position is dropped if only another copy makes the target's rows right: something changed at the
        source that no row tells, or the map made them by another rule (`kuvasz.lake.format.rule`). The last of what
        is returned then says why.

        Args:
            target: What the map says of it.
            feed: The source table.
            relation: As its catalog shows it now.
            is_streaming: Its changes are being applied: whatever needs a copy is not done.
            since: When whoever prepares many tables began, in monotonic seconds: what the lake's table showed from
                then on will do. None: it is looked at now.

        Returns:
            What changed and what was done about it, in words.

        The relation is whole, as the stream will describe it; `Target.takes` says which of its columns count.

        Raises:
            SchemaError: An existing table has other types or another key, or is not ours, or must not follow.
            CopyNeeded: A copy is needed, and it is streaming. Nothing was done.
            OtherRule: The map made the rows that are there by another rule, and a copy would not be in their place.
            TableStuck: Catalog or storage fail for this target alone.
            LakeError: Catalog or storage failed.
        """

    def make_room(self, target: str, feed: Feed, relation: Relation) -> Sequence[str]:
        """Have a place for rows that are of a type which their column had before the catalog was looked at.

        Args:
            target: A prepared one.
            feed: The source table.
            relation: As a message describes it, with numbered columns.

        Returns:
            What was done about it, in words; nothing where rows have a place.

        Raises:
            SchemaError: Someone else changed the table.
        """

    def create(self, target: Target, feed: Feed, relation: Relation) -> bool:
        """Create a target that nothing feeds yet, and leave it at that; return whether it was not there.

        Whoever is to feed it prepares it as any other. `relation` is whole, as for `prepare`.

        Raises:
            SchemaError: The target has no place for such a table.
            LakeError: Catalog or storage failed.
        """

    def attach(self, target: Target, feed: Feed) -> bool:
        """Load a target that exists, so that positions, columns and notes of its sources can be asked for.

        For a source table that cannot be prepared: what the lake has of it is needed all the same. Changes nothing.

        Returns:
            Whether there is such a table in the lake.

        Raises:
            SchemaError: The table is not what the map says.
            LakeError: Catalog or storage failed.
        """

    def positions(self, target: str) -> Mapping[str, SourcePosition]:
        """Return how far each source is in a target; a source that was never copied is missing."""

    def position(self, target: str, source: str) -> SourcePosition | None:
        """Return how far one source is in a target: what `positions` says of it, for less than a copy of all."""
        return self.positions(target).get(source)

    def recorded(self, target: str) -> Mapping[str, SourcePosition]:
        """Return the same of any target, prepared or not: the catalog is asked, and nothing is changed.

        What is there of copies and repairs whose commits nobody answered is known from then on.

        Raises:
            LakeError: The catalog failed, or a position was damaged.
        """

    def stored(self, target: str) -> Mapping[str, SourcePosition]:
        """Return the same as the catalog has it now: also of a commit of which no answer came.

        Raises:
            LakeError: The catalog failed, or a position was damaged.
        """

    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Any:  # noqa: ANN401
        """Decode, fold and write the changes of several targets in one job. Rows before a position are skipped.

        What is returned waits for `commit`; it is opaque to its holder.

        Args:
            works: What there is to write.
            apart: Find out whether the rows of one source end jobs, because that for all has failed often: it has
                failed if jobs with rows of others succeed.

        Raises:
            LakeError: Nothing was written; it may be tried again with the same works.
        """

    def commit(self, written: Any) -> Iterable[Receipt | Failure | Pending]:  # noqa: ANN401
        """Make written work visible, one commit per target, or per `Target.group`, in the order of the `write` calls.

        Of a target whose changes some sources brought wrong there is a `Failure` of each of these, and a receipt of
        the others. What catalog or store refuse is tried again; where that takes long the outcome is `Pending`.
        """

    def copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
        *,
        on_read: Callable[[], None] = lambda: None,
        pace: CopyPace = ANY_PACE,
        ledger: CopyLedger | None = None,
    ) -> Receipt:
        """Copy a source table and make it visible in one commit with its position.

        `relation` has the columns of the requests' rows: those that the target takes.
        Rows of this source that the target already has are replaced. `on_progress(requests done, rows)` is called
        from any thread. `on_read()` is called when all requests have been read, before the commit: should it raise,
        nothing was read that counts. `pace` is asked before each request. `ledger` comes if `resumes_copies`.
        """

    def forget(
        self, target: str, source: str, *, to_repair: bool = False, is_gone: bool = False, gap_lsn: int | None = None
    ) -> None:
        """Drop a source's position from a target, prepared or not: the source has to be copied again, or repaired.

        Its rows stay until the copy replaces them; what `SourceNotes.park` noted goes, too. What other sources have
        under way goes on; of this source nothing may be written and not committed. With `to_repair` a gap opens in
        the same commit, if there was a position; without, the target forgets the source's gaps. The gap begins at
        `gap_lsn` if that is below the position: what was lost may lie before what was applied. With `is_gone` it
        does not come back as far as anybody knows, or as another one: its columns and partitions are forgotten in the
        same commit, too, and bind nobody.

        Raises:
            TableGone: Someone dropped the target from the lake; `prepare` makes it anew.
        """

    def repair(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[str, int, int], None],
        *,
        at_us: int = 0,
        on_read: Callable[[], None] = lambda: None,
        gap_lsn: int | None = None,
    ) -> Receipt:
        """Change what differs from a snapshot of a source, and nothing else, in one commit with its position.

        Called like `copy`, for a source whose gap is open: it is closed in the same commit. A clone's rows become
        the source's. Versions of a history end and begin at `at_us` (µs since 1970-01-01 UTC, the snapshot's time
        by the source's clock). What an append or changelog table misses cannot be known: its rows stay as they are.
        `on_progress(phase, parts done, parts)` is called from any thread. `Receipt.rows` counts differing keys.

        With `gap_lsn` the source has a position, for the target has all that its stream brought before the snapshot,
        and nothing that came later. What was missing besides lies behind that LSN: the commit notes this gap whole.

        Raises:
            TableError: So much differs that a copy is cheaper, or as `copy`.
            SourceError, LakeError: As `copy`.
        """

    def relocate(self, target: str, source: str, position: SourcePosition) -> None:
        """Have a source be at another position of a prepared target, which has all that lies between, and no more.

        The source must not be streaming into it.

        Raises:
            LakeRewound: Someone set the table back: nobody knows what it has.
            LakeError: Catalog or storage failed.
        """

    def unmapped(
        self, feeds: Mapping[str, Collection[str]], others: Collection[str] = ()
    ) -> Sequence[tuple[str, str]]:
        """Return targets with the name of a source each that has a position there and did not feed them all along.

        Args:
            feeds: Feeder (`kuvasz.config.names.feeder_of`) -> the targets that it fed all along. Names of other
                feeders are not looked at, and no other namespaces than those of the targets and the lake's own.
            others: Targets that are looked at, too, whoever feeds them.

        Raises:
            LakeError: Catalog or storage failed.
        """

    def let_go(self, *targets: str) -> None:
        """Forget targets here, for another process is to have them, or the map defines them otherwise.

        When one comes back it is loaded anew.

        Nothing that feeds them is under way; what looks after their files is waited for.

        Args:
            targets: Their names; what is kept for whoever has them next is kept of all at a time.
        """

    def resume(self, target: str, failure: KuvaszError | None) -> None:
        """Let a target that failed be written again; its sources begin again at their positions.

        After a `Failure`, all writes of the target, or those of the one source, are ignored until this is called:
        they begin behind a gap. So nothing may be under way of it, and none of these sources follow.

        Args:
            target: The name of the target.
            failure: What is undone. Without effect on another one, or none: each of its sources may call this.
        """

    def failure(self, target: str, source: str | None = None) -> KuvaszError | None:
        """Return why a target's writes, or those of one of its sources, are ignored; None if they are not."""

    def close(self) -> None:
        """Let go of everything; what was written and not committed is removed."""
