"""The ledgers of one source's copies: a copy that was cut off goes on from the parts that it has finished.

A part is a range of blocks, and what was made of it is right as of the snapshot that it was read under. The next
attempt has another snapshot. Between the two stands the stream: the source's slot has not passed the earlier
snapshot, for a table that is being copied holds it, so a copy of that slot tells each key whose row changed since.
Rows of all other keys are what they were, and where they were: nothing but an UPDATE moves a row to another block,
but for what gives the table another file, which its catalog entries tell. So the rows of changed keys are left out of
all parts and read by their keys as the new snapshot shows them, and with the ranges that are missing all is as of the
new snapshot, as if nothing had been cut off. Whatever keeps that from being certain makes the copy begin again.

A standby has the rows, and the catalog's entries, at the very places at which its primary has them, so it makes no
difference where an attempt reads. The LSN of a standby's snapshot lies behind that of a slot which the primary made
just before, and so behind all that any standby had shown by then: snapshots only get newer.

In threads, never on the event loop.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from kuvasz import lsn
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, SourceError, SourceRefused, StateError
from kuvasz.events import Event, EventLog
from kuvasz.model import PgType, Segment, TableName, TableType, Truncation
from kuvasz.ports import CopyLedger, EarlierParts
from kuvasz.source import conninfo, snapshot, window
from kuvasz.source.catalog import entries, introspect, membership
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.ports import LedgerDocument, StoredLedger
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import keyless
from kuvasz.sync.tables.copy_snapshot import CopySnapshot

_log = EventLog(__name__)

#: Attempts that may fail while the changes since an earlier one are read.
_ATTEMPTS: Final = 3

#: Facts of a copy, by what another one means.
_WHY: Final[Mapping[str, str]] = {
    "server": "another server answers, or it was started anew",
    "published": "the table was not published all the time",
    "table": "the table was altered",
    "rows": "the map takes other rows of it",
}

#: A leaf's schema and name, first block, end block, size.
_Span = tuple[str, str, int, int | None, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """What is copied, and how it is seen."""

    spec: SourceTableSpec
    under: CopySnapshot
    table: SourceTable  #: with the columns that the map takes
    names: snapshot.Names
    system_id: str


class CopyLedgers:
    """The ledgers of one source.

    Args:
        context: The context of the source.
        slot: Its slot.
    """

    def __init__(self, context: SourceContext, slot: Slot) -> None:
        self._context = context
        self._slot = slot
        self._attempts: collections.Counter[str] = collections.Counter()
        self._finished: collections.Counter[str] = collections.Counter()  #: most parts that an attempt left so far

    def has(self, spec: SourceTableSpec) -> bool:
        """Whether a table's copy may go on from what is finished of it: the slot is to stay for that."""
        ledger = self._stored(spec)
        return ledger is not None and ledger.is_there

    def drop(self, spec: SourceTableSpec) -> None:
        """Have the next copy of a table begin with nothing.

        Raises:
            SourceError: What is noted of it may still be there.
        """
        ledger = self._stored(spec)
        if ledger is not None and ledger.is_there:
            with _kept():
                ledger.remove()

    def _stored(self, spec: SourceTableSpec) -> StoredLedger | None:
        shared = self._context.shared
        if not shared.lake.resumes_copies or shared.is_snapshot_only or shared.staged is not None:
            return None
        return shared.state.ledger(spec.identifier, self._context.source_tables.name(spec))

    @contextlib.contextmanager
    def of(
        self, facts: CopyFacts, ranges: Sequence[snapshot.CopyRange]
    ) -> Iterator[tuple[TableLedger | None, Sequence[snapshot.CopyRange]]]:
        """Yield the ledger of a copy, None if it has none, and what is to be read in all.

        Args:
            facts: What is copied.
            ranges: What would be read if nothing was finished.

        Raises:
            SourceError: The server failed, or what was noted and does not count may still be there.
        """
        stored = self._stored(facts.spec)
        # Of a single range there is nothing to keep.
        head = self._head(facts) if stored is not None and len(ranges) > 1 and _can_go_on(facts) else None
        if stored is None or head is None:
            self.drop(facts.spec)
            yield None, ranges
            return
        told = {"source": self._context.source.name, "table": facts.spec.identifier}
        ledger = TableLedger(
            stored, head, ranges, told, before=self._finished.pop(facts.spec.key, 0),
            on_seen=lambda spent: self._seen(facts.spec, spent),
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            found = stored.read()
            try:
                if found is not None and found.parts:
                    ledger.why_not = self._take_up(stack, ledger, found, facts)
                yield ledger, ledger.ranges
            except (SourceError, LakeError):  # it is tried again; else it is there, or waits for a person
                self._finished[facts.spec.key] = max(ledger.before, len(ledger.parts))
                raise

    def _seen(self, spec: SourceTableSpec, spent_s: float) -> None:
        """Take note that a copy goes on that took some time already."""
        self._attempts.pop(spec.key, None)
        tables = self._context.source_tables
        tables.note(spec, copy_began=tables.look(spec).copy_began - spent_s)

    def _take_up(
        self, stack: contextlib.ExitStack, ledger: TableLedger, found: LedgerDocument, facts: CopyFacts
    ) -> str:
        """Have a ledger go on from what was noted; returns why it cannot, empty if it does."""
        for name, why in _WHY.items():
            if found.head.get(name) != ledger.head[name]:
                return why
        try:
            since, made_for = int(found.head["lsn"]), str(found.head["made_for"])
            spans = [_span(entry) for entry in found.head["spans"]]
            ranges = [_at(ledger.ranges[0], entry) for entry in spans]
        except (KeyError, TypeError, ValueError):
            return "its ledger cannot be read"
        if not all(0 <= number < len(ranges) for number in found.parts) or not _is_whole(spans):
            return "its ledger cannot be read"
        if self._attempts[facts.spec.key] >= _ATTEMPTS:
            return "the changes since then could not be read"
        self._attempts[facts.spec.key] += 1
        opened = self._window(stack, facts, since)
        if isinstance(opened, str):
            return opened
        ledger.head = {**found.head}
        ledger.ranges = ranges
        ledger.parts, ledger.spent_s = dict(found.parts), found.seconds
        ledger.earlier = EarlierParts(
            made_for=made_for, parts=dict(found.parts),
            changes=_between(opened, since, facts.under.taken.consistent_point),
            look_up=_look_up(ledger.ranges[0], facts.table),
        )  # fmt: skip
        return ""

    def _window(self, stack: contextlib.ExitStack, facts: CopyFacts, since: int) -> window.Window | str:
        """Return the stream of a copy of the slot, or why there is none that tells all.

        Raises:
            SourceError: The connection is gone.
        """
        source, name = self._context.source.name, f"{self._slot.name[:50]}_seen_{random.getrandbits(24):06x}"
        replication = conninfo.replication_conninfo(self._context.replication_url())
        if self._context.copies_from is None:
            replication = facts.under.taken.pinned(replication)  # else that is the standby, and the slot is elsewhere
        pgconn = conninfo.connect_pq(replication, f"copy slot {self._slot.name}")
        stack.callback(pgconn.finish)
        try:
            begin = window.copy_slot(pgconn, self._slot.name, name, source)
        except SourceRefused as error:  # no slot is free, say: what is finished is worth another attempt
            raise SourceError(error.message, hint=error.hint) from error
        except SourceError as error:
            if not conninfo.is_idle(pgconn):
                raise
            return f"the slot could not be copied: {error.message}"
        if begin > since:
            return f"the slot stands at {lsn.render(begin)}, behind the snapshot that it was begun with"
        oid = facts.table.relation.oid
        return window.Window(pgconn, name, [self._slot.name], oid, self._types, source)

    def _types(self, oids: list[int]) -> dict[int, PgType]:
        with contextlib.closing(conninfo.connect(self._context.url())) as connection:
            return introspect.load_types(connection, oids)

    def _head(self, facts: CopyFacts) -> dict[str, Any] | None:
        """Return what another attempt has to find alike, and where this one stands; None: nothing tells its changes.

        All of it is as the snapshot shows it: what two snapshots show alike was so at each moment in between.
        """
        taken, relation = facts.under.taken, dataclasses.replace(facts.table.relation, seen=None)
        with snapshot.session(facts.under.conninfo(), taken.snapshot_name) as connection:
            versions = entries.versions(connection, relation.oid)
            published = membership.load(connection, self._slot.name, [relation.oid]).get(relation.oid)
        if published is None or published.above or published.links:
            return None
        return {
            "lsn": taken.consistent_point,
            "server": [facts.system_id, self._slot.timeline, taken.started_us],
            "published": published.render(),
            "table": _digest(repr((relation, sorted(facts.names.seen, key=repr), versions))),
            "rows": _digest(repr((facts.spec.table, facts.spec.config))),
        }


class TableLedger(CopyLedger):
    """The ledger of one copy.

    Args:
        stored: Where it is kept.
        head: What another attempt has to find alike, and where this one stands.
        ranges: What is read.
        told: What events tell of the copy.
        before: How many parts were finished when an earlier attempt ended, at the most.
        on_seen: Called when nothing more is read of the changes since an earlier attempt, with the seconds that
            it took as far as it counts.
    """

    def __init__(
        self,
        stored: StoredLedger,
        head: dict[str, Any],
        ranges: Sequence[snapshot.CopyRange],
        told: Mapping[str, str],
        *,
        before: int = 0,
        on_seen: Callable[[float], None],
    ) -> None:
        self.earlier: EarlierParts | None = None
        self.head = head
        self.ranges = ranges
        self.parts: dict[int, str] = {}  #: what is finished
        self.spent_s = 0.0  #: by earlier attempts
        self.before = before
        self.why_not = ""  #: why what was noted by an earlier attempt is of no use
        self._fresh = dict(head)
        self._stored = stored
        self._told = told
        self._on_seen = on_seen
        self._begun_at = time.monotonic()

    @property
    def gets_on(self) -> bool:
        """Whether more is finished than when any attempt before ended: so it comes to an end, be there many."""
        return len(self.parts) > self.before

    @override
    def begin(self, made_for: str, why: str = "") -> None:
        """See `CopyLedger.begin`."""
        if why := why or self.why_not:
            _log.tell(Event.COPY_BEGUN_AGAIN, found=why, **self._told)
        self._on_seen(0.0)
        self.earlier, self.parts, self.spent_s = None, {}, 0.0
        spans = [(r.table.schema, r.table.name, r.first_block, r.end_block, r.size) for r in self.ranges]
        self.head = {**self._fresh, "made_for": made_for, "spans": spans}
        with _kept():
            self._stored.begin(self.head, self.parts)

    @override
    def go_on(self, keys: int) -> None:
        """See `CopyLedger.go_on`."""
        self._on_seen(self.spent_s)
        self._stored.go_on()
        _log.tell(
            Event.COPY_RESUMED, done=len(self.parts), total=len(self.ranges), keys=keys,
            since_lsn=lsn.render(int(self.head["lsn"])), **self._told,
        )  # fmt: skip

    @override
    def note(self, number: int, made: str) -> None:
        """See `CopyLedger.note`."""
        self.parts[number] = made
        self._stored.note(number, made, self._spent_s())

    @override
    def close(self) -> None:
        """See `CopyLedger.close`."""
        with _kept():
            self._stored.remove()

    @override
    def reopen(self) -> None:
        """See `CopyLedger.reopen`."""
        with _kept():
            self._stored.begin(self.head, self.parts, self._spent_s())

    def _spent_s(self) -> float:
        return self.spent_s + time.monotonic() - self._begun_at


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    """Have a copy be tried again whose ledger cannot be kept in order."""
    try:
        yield
    except StateError as error:
        raise SourceError(error.message, hint=error.hint) from error


#: OIDs below are PostgreSQL's own (manual, section 68.2.2).
_FIRST_MADE = 16384


def _can_go_on(facts: CopyFacts) -> bool:
    """Whether a copy that was cut off can be told from one that was not by nothing but its time.

    Nothing tells the rows of a table without a key apart; each row of a history, or of a table that only grows, may
    say when it was read; and partitions come and go, with rows that no message tells of.
    """
    table = facts.table
    is_kept_apart = bool(table.relation.key) and bool(table.relation.uniqueness.index_oid)
    return (
        facts.spec.config.type is TableType.CLONE
        and not facts.spec.member
        and table.kind is TableKind.TABLE
        and is_kept_apart
        and not keyless.has_only_inserts(table)
        and all(_is_read_plainly(column.pg_type) for column in table.relation.columns if column.is_key)
    )


def _is_read_plainly(kind: PgType) -> bool:
    """Whether the server makes a value of a text without calling what somebody has made.

    Keys are looked up so. Those of a domain are taken for its base type's, but not where it is part of another type.
    """
    while kind.base is not None:
        kind = kind.base
    if kind.element is not None:
        return kind.element.base is None and _is_read_plainly(kind.element)
    return kind.oid < _FIRST_MADE or kind.category in {"b", "e"}


def _is_whole(spans: Sequence[_Span]) -> bool:
    """Whether spans of one table have each block once, however far it grows."""
    expected: int | None = 0
    for _, _, first, end, _ in sorted(spans, key=lambda span: span[2]):
        if first != expected:
            return False
        expected = end
    return expected is None


def _span(entry: Sequence[Any]) -> _Span:
    schema, name, first, end, size = entry
    return str(schema), str(name), int(first), None if end is None else int(end), int(size)


def _at(like: snapshot.CopyRange, span: _Span) -> snapshot.CopyRange:
    schema, name, first, end, size = span
    if like.table != TableName(schema=schema, name=name):
        msg = f"another table: {schema}.{name}"
        raise ValueError(msg)
    return dataclasses.replace(like, first_block=first, end_block=end, size=size)


def _between(opened: window.Window, since: int, end: int) -> Iterator[Segment | Truncation]:
    for change in opened.read(end):
        _, wanted = window.split(change, since)
        if wanted is not None:
            yield wanted


def _look_up(
    like: snapshot.CopyRange, table: SourceTable
) -> Callable[[Sequence[str], Sequence[tuple[str, ...]]], snapshot.CopyRange]:
    def look_up(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> snapshot.CopyRange:
        type_of = {column.name: column.pg_type for column in table.relation.columns}
        wanted = tuple(columns), snapshot.wanted_values([type_of[name] for name in columns], rows)
        return dataclasses.replace(like, first_block=0, end_block=None, size=0, wanted=wanted)

    return look_up


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


__all__ = ["CopyFacts", "CopyLedgers", "TableLedger"]
