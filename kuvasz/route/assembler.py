"""From gulps to deliveries: whole transactions of one source, grouped by relation, addressed to workers.

In: gulps (see `kuvasz.route.scan`), cut anywhere between two messages. Out: deliveries. The cuts do not show: the
deliveries of a stream, one after another, hold the same rows and transactions however it was cut.

- Rows of a transaction still open at the end of a gulp wait in their lane. Once they outgrow `spill_bytes` they
  go out as an *open* part, and the end of that transaction then reaches every worker that was given one.
- A *lane* collects the rows of one relation version. A Relation message of another shape, or another route, opens
  a new one; an equal message (they come again after each reconnect) does not.
- After a TRUNCATE every relation of its worker gets a new lane with its next row, since any of them may share the
  target: what came before and what came after cannot mix.
"""

from __future__ import annotations

import bisect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz import errors, lsn
from kuvasz.decode import messages
from kuvasz.model import (
    Applied,
    Column,
    Delivery,
    PgType,
    Relation,
    ReplicaIdentity,
    Segment,
    TableName,
    Transactions,
    Truncation,
    UInt8s,
    UInt32s,
)
from kuvasz.route import scan, small_gulp
from kuvasz.route.lane import Begun, Gulp, Lane, PendingTruncation
from kuvasz.route.row_limit import RowLimit
from kuvasz.route.small_gulp import SmallGulp

if TYPE_CHECKING:
    from kuvasz.ports import Routes
    from kuvasz.route.many import FoundGulp

TypeLookup: TypeAlias = Callable[[list[int]], dict[int, PgType]]
Follow: TypeAlias = Callable[[Relation, int, int], Relation]
OnTruncate: TypeAlias = Callable[[Relation, int, int], None]
OnAstray: TypeAlias = Callable[[Relation, int], None]
Change: TypeAlias = Segment | Truncation

#: Relations that a source may describe on one connection, of which most may be none of the map's.
_MOST_RELATIONS = 1 << 20

#: Of those that are none of the map's, so many stay known over a connection; of more, all are described again.
_MOST_KEPT = 10_000

#: Names of types that are kept: a server tells one right before the relation that has columns of it.
_MOST_TYPES = 10_000

#: Counted against the memory budget for what a change holds besides its rows.
_CHANGE_BYTES = 256
_TRANSACTION_BYTES = 32

_FIRST = operator.itemgetter(0)


class Assembler:
    """The route of one source. Not safe for use from two threads at once.

    Large because what waits of the open transaction, in which lanes and behind which truncations, is one state that
    each step of a gulp takes further. What needs no state is elsewhere: the walk (`scan`), lanes and gulps (`lane`).

    Args:
        source: Name of the source, for segments and messages.
        routes: Says which worker applies a relation's changes.
        types: Resolves type oids; may ask the source's catalog. Oids it leaves out are taken as unknown types.
        spill_bytes: An open transaction goes out in parts once its rows have so many bytes.
        follow: Told of every Relation message within a transaction, with its commit LSN and xid; returns the relation
            with what the catalog adds to it. May ask the catalog.
        on_truncate: Told of every TRUNCATE of a relation with a route, with its commit LSN and xid.
        on_astray: Told of every relation with a route whose row came as that of another, with its commit LSN: an
            ancestor is published, and has its changes (manual, "CREATE PUBLICATION", publish_via_partition_root).
        row_limit: Looks at what goes out; None: a row may have any size.
    """

    def __init__(
        self,
        source: str,
        routes: Routes,
        types: TypeLookup,
        spill_bytes: int,
        *,
        follow: Follow | None = None,
        on_truncate: OnTruncate | None = None,
        on_astray: OnAstray | None = None,
        row_limit: RowLimit | None = None,
    ) -> None:
        self._follow = follow or _as_it_is
        self._on_truncate = on_truncate or _untold
        self._on_astray = on_astray or _unseen
        self._row_limit = row_limit or _NO_LIMIT
        self._source = source
        self._routes = routes
        self._types = types
        self._spill_bytes = spill_bytes
        self._epoch = 0
        self._marks = np.zeros(scan.MARK_FIELDS, np.uint64)
        self._table = scan.LaneTable()
        self._lanes: list[Lane] = []
        self._lane_of: dict[int, int] = {}  # relation oid -> lane number or scan.NO_LANE
        self._has_stale_lanes = False
        self._barriers: dict[int, int] = {}  # worker -> lanes before this number may take no more rows
        self._truncations: list[PendingTruncation] = []
        self._type_names: dict[int, PgType] = {}  # from Type messages
        self._described: Relation | None = None  # one with a route, and what came behind it was not seen yet
        self._begun: Begun | None = None
        self._waiting_bytes = 0
        self._open_workers: set[int] = set()  # were given a part of the open transaction
        self._is_reply_wanted = False
        self._expected: dict[int, Applied] = {}  # by commit LSN
        self.rows = 0  #: row messages handed on
        self.dropped_rows = 0  #: row messages of relations without a route
        self.transactions = 0  #: transactions that ended
        #: when the source committed the last of them, as of a whole gulp, by its own clock, µs since 2000-01-01 UTC
        self.commit_us: int | None = None

    @property
    def received_lsn(self) -> int:
        """LSN up to which the source has been heard out since the last reset: a Commit's end or a keepalive's LSN.

        Never within a transaction that has not been handed on whole.
        """
        return int(self._marks[scan.RECEIVED_LSN])

    @property
    def in_transaction(self) -> bool:
        """Whether the last gulp ended within a transaction."""
        return self._begun is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the open transaction's rows that wait inside."""
        return self._waiting_bytes

    @property
    def unproven_lsn(self) -> int | None:
        """LSN of the first transaction that is still to come and prove itself; None: none is."""
        return min(self._expected, default=None)

    def expect(self, applied: Iterable[Applied]) -> None:
        """Have transactions that the lake has come on this connection, or `feed` refuses whatever comes behind."""
        self._expected = {one.commit_lsn: one for one in applied}

    def take_reply_wanted(self) -> bool:
        """Tell, once, whether a keepalive asked for a status update."""
        wanted, self._is_reply_wanted = self._is_reply_wanted, False
        return wanted

    def reset(self, epoch: int) -> None:
        """Start over after a reconnect: what waits of an open transaction is dropped, it will be sent again.

        Args:
            epoch: Number of the new connection, for the deliveries to come.
        """
        self._epoch = epoch
        self._begun = None
        self._waiting_bytes = 0
        self._open_workers = set()
        self._truncations = []
        self._marks[:] = 0
        self._is_reply_wanted = False
        self._described = None
        self._expected = {}
        for lane in self._lanes:
            lane.clear()
            lane.segments = []
        if len(self._lane_of) > _MOST_KEPT:
            self._lane_of = {oid: number for oid, number in self._lane_of.items() if number != scan.NO_LANE}
            self._table = scan.LaneTable()
            for oid, number in self._lane_of.items():
                self._table.put(oid, number)
        self._settle()

    def feed(self, gulp: bytes | bytearray | UInt8s, lengths: UInt32s) -> list[tuple[int, Delivery]]:
        """Take one gulp and return the deliveries it completes, at most one per worker.

        Args:
            gulp: CopyData payloads, one after another. May be reused after the call: what is kept is copied.
            lengths: Bytes of each payload.

        Returns:
            Worker and delivery. They must be registered as routed before `received_lsn` is made known.

        Raises:
            DecodeError: The bytes are not what the protocol says. The assembler must be reset.
            SourceError: From `types`. The assembler must be reset.
            SourceReplaced: A transaction that the lake has did not come. The assembler must be reset.
        """
        is_small = len(lengths) <= small_gulp.MOST_MESSAGES and len(gulp) <= small_gulp.MOST_BYTES
        if is_small and self._is_between():
            small = SmallGulp(self._lane_of, scan.NO_LANE, self.received_lsn)
            if small.read(bytes(gulp), lengths):
                return self._take_small(small)
        view = scan.frozen_view(gulp)
        scan.check(view, lengths)
        cut = Gulp(view, lengths, self._begun)
        self._classify(cut)
        if self._expected:
            self._meet(cut)
        deliveries = self._deliver(cut)
        self._note(cut)
        return deliveries

    def _is_between(self) -> bool:
        """Whether nothing of the stream is open, or waits for what comes."""
        return (
            self._begun is None
            and not (self._expected or self._truncations or self._barriers)
            and self._described is None
        )

    def _take_small(self, small: SmallGulp) -> list[tuple[int, Delivery]]:
        self._is_reply_wanted |= small.is_reply_wanted
        self._marks[scan.RECEIVED_LSN] = small.received_lsn
        self.dropped_rows += small.dropped_rows
        if not small.transactions:
            return []
        lanes = [
            (number, b"".join(rows.rows), np.array(rows.lengths, np.uint32), rows.transactions(small.transactions))
            for number, rows in small.lanes.items()
        ]
        _, end_lsn, commit_us, _ = small.transactions[-1]
        return self._hand_on(lanes, len(small.transactions), end_lsn, commit_us)

    def take(self, found: FoundGulp) -> list[tuple[int, Delivery]] | None:
        """Take a gulp that was read together with those of others, as `feed` does, for a fourth of its time.

        Returns:
            What `feed` returns; None if nothing was done: it has to be fed.
        """
        is_open = not self._is_between() if found.transactions else bool(self._begun is not None or self._expected)
        lanes = [self._lane_of.get(run.oid) for run in found.runs]
        if is_open or None in lanes:
            return None
        self._is_reply_wanted |= found.is_reply_wanted
        if found.received_lsn > self.received_lsn:
            self._marks[scan.RECEIVED_LSN] = found.received_lsn
        if not found.transactions:
            return []
        wanted = []
        for number, (_, data, lengths, transactions) in zip(lanes, found.runs, strict=True):
            if number == scan.NO_LANE:
                self.dropped_rows += len(lengths)
            elif number is not None:
                wanted.append((number, data, lengths, transactions))
        return self._hand_on(wanted, found.transactions, found.end_lsn, found.commit_us)

    def _hand_on(
        self, lanes: list[tuple[int, bytes, UInt32s, Transactions]], transactions: int, end_lsn: int, commit_us: int
    ) -> list[tuple[int, Delivery]]:
        """Return the deliveries of whole transactions, by the numbers of their rows' lanes."""
        self._marks[scan.LAST_END_LSN] = end_lsn
        self.transactions += transactions
        self.commit_us = commit_us
        changes: dict[int, list[Change]] = {}
        lanes.sort(key=_FIRST)
        for number, data, lengths, runs in lanes:
            lane = self._lanes[number]
            changes.setdefault(lane.worker, []).append(
                Segment(source=self._source, relation=lane.relation, data=data, lengths=lengths, transactions=runs)
            )
        return [(worker, self._delivery(changes[worker], is_open=False)) for worker in sorted(changes)]

    def hear(self, keepalives: bytes) -> bool:
        """Take what `scan.keepalives` returned, as `feed` does, for a tenth of its time.

        Returns:
            False if nothing was done, for something of the stream is open or wrong: they have to be fed.
        """
        if self._begun is not None or self._expected:
            return False
        received, is_reply_wanted = self.received_lsn, False
        for at in range(0, len(keepalives), messages.KEEPALIVE_BYTES):
            begin = at + messages.KEEPALIVE_LSN
            received = max(received, int.from_bytes(keepalives[begin : begin + 8], "big"))
            is_reply_wanted |= keepalives[at + messages.KEEPALIVE_REPLY] == 1
        if received > messages.LAST_LSN:  # `feed` says what is wrong with it
            return False
        self._is_reply_wanted |= is_reply_wanted
        self._marks[scan.RECEIVED_LSN] = received
        return True

    def _classify(self, cut: Gulp) -> None:
        sheet = cut.sheet
        rows = sheet.lane, sheet.offset, sheet.length, sheet.transaction
        transactions = sheet.commit_lsn, sheet.end_lsn, sheet.commit_us, sheet.xid
        while True:
            if self._described is not None:
                self._see_whose(self._described, cut)
            code = scan.classify(
                cut.gulp,
                cut.lengths,
                self._table.oids,
                self._table.lanes,
                cut.cursor,
                self._marks,
                rows,
                transactions,
            )
            if code == scan.DONE:
                return
            if code == scan.NEEDS_LANE:
                oid = int.from_bytes(cut.message()[1:5], "big")
                lane = self._lanes[self._lane_of[oid]]
                self._open_lane(lane.worker, lane.relation)
            elif code == scan.STOPPED:
                self._take(cut, messages.parse(cut.message()))
                cut.skip()
            else:
                raise scan.refuse(code, cut.gulp, cut.lengths, cut.cursor)

    def _meet(self, cut: Gulp) -> None:
        """Take note of expected transactions that came.

        Raises:
            SourceReplaced: One did not, and what lies behind it has come.
        """
        sheet, count = cut.sheet, cut.last_transaction + 1
        reached = max(self.received_lsn, int(sheet.commit_lsn[count - 1]) if count else 0)
        met: set[int] = set()
        for one in [one for one in self._expected.values() if one.commit_lsn <= reached]:
            places = np.flatnonzero(sheet.commit_lsn[:count] == one.commit_lsn)
            if len(places):
                at = places[0]
                came = Applied(one.commit_lsn, int(sheet.xid[at]), int(sheet.commit_us[at]))
                if one.xid in (0, came.xid) and one.commit_us in (0, came.commit_us):
                    met.add(one.commit_lsn)
                    continue
            elif reached == one.commit_lsn:
                continue  # a keepalive may name the place where it begins
            raise errors.SourceReplaced(
                f"{errors.place_of(self._source)}: the lake has a transaction at {lsn.render(one.commit_lsn)} that is"
                " not in its WAL: an older backup was restored, or a standby took over that was late",
                hint=errors.start_over(self._source),
            )
        if met:  # put in its place: the status clock of the loop looks at it meanwhile
            self._expected = {at: one for at, one in self._expected.items() if at not in met}

    def _take(self, cut: Gulp, message: messages.Message) -> None:
        match message:
            case messages.RelationShape():
                self._describe(cut, message)
            case messages.TypeName():
                named = PgType(oid=message.oid, name=message.name, schema=message.schema)
                self._type_names.pop(message.oid, None)  # the newest is the last to go
                self._type_names[message.oid] = named
                if len(self._type_names) > _MOST_TYPES:
                    del self._type_names[next(iter(self._type_names))]
            case messages.Truncate():
                self._truncate(cut, message)
            case messages.ReplicationOrigin():
                cut.note_origin()
            case _:
                pass  # Message carries no rows

    def _see_whose(self, described: Relation, cut: Gulp) -> None:
        """See whose row comes behind a relation: the server describes one before its own row, or its ancestor's."""
        is_there, oid = cut.row_behind()
        if is_there:
            self._described = None
        if oid and oid != described.oid and cut.is_open:
            self._on_astray(described, int(cut.sheet.commit_lsn[cut.last_transaction]))

    def _describe(self, cut: Gulp, shape: messages.RelationShape) -> None:
        if shape.oid not in self._lane_of and len(self._lane_of) >= _MOST_RELATIONS:
            what = f"more than {_MOST_RELATIONS:,} relations were described on one connection"
            hint = "it begins again by itself; publish the tables of the map alone"
            raise errors.SourceError(f"{errors.place_of(self._source)}: {what}", hint=hint)
        relation = self._relation(shape)
        if cut.is_open:
            number, sheet = cut.last_transaction, cut.sheet
            relation = self._follow(relation, int(sheet.commit_lsn[number]), int(sheet.xid[number]))
        worker = self._routes.worker(self._source, relation)
        number = self._lane_of.get(relation.oid, scan.NO_LANE)
        self._described = None if worker is None else relation
        if worker is None:
            self._has_stale_lanes |= number != scan.NO_LANE
            self._lane_of[relation.oid] = scan.NO_LANE
            self._table.put(relation.oid, scan.NO_LANE)
        elif number == scan.NO_LANE or not self._lanes[number].serves(worker, relation):
            self._open_lane(worker, relation)

    def _open_lane(self, worker: int, relation: Relation) -> None:
        self._has_stale_lanes |= self._lane_of.get(relation.oid, scan.NO_LANE) != scan.NO_LANE
        self._lane_of[relation.oid] = len(self._lanes)
        self._table.put(relation.oid, len(self._lanes))
        self._lanes.append(Lane(worker, relation))

    def _relation(self, shape: messages.RelationShape) -> Relation:
        oids = {column.type_oid for column in shape.columns}
        unknown = {oid: self._type_names.get(oid, PgType(oid=oid, name="unknown")) for oid in oids}
        types = unknown | self._types(sorted(oids))
        columns = tuple(
            Column(name=column.name, pg_type=types[column.type_oid], typmod=column.typmod, is_key=column.is_key)
            for column in shape.columns
        )
        table = TableName(schema=shape.schema, name=shape.name)
        return Relation(oid=shape.oid, table=table, identity=ReplicaIdentity(shape.identity), columns=columns)

    def _truncate(self, cut: Gulp, message: messages.Truncate) -> None:
        if not cut.is_open:
            raise errors.DecodeError(f"{errors.place_of(self._source)}: TRUNCATE outside of a transaction")
        place = len(self._lanes)
        for oid in message.relation_oids:
            number = self._lane_of.get(oid)
            if number is None:
                raise errors.DecodeError(
                    f"{errors.place_of(self._source)}: TRUNCATE of relation {oid}, which was not described"
                )
            if number != scan.NO_LANE:
                lane, last, sheet = self._lanes[number], cut.last_transaction, cut.sheet
                self._on_truncate(lane.relation, int(sheet.commit_lsn[last]), int(sheet.xid[last]))
                self._barriers[lane.worker] = place
                self._truncations.append(
                    PendingTruncation(
                        place=place, worker=lane.worker, relation=lane.relation, transaction=cut.last_transaction
                    )
                )
        for oid, number in self._lane_of.items():
            if number != scan.NO_LANE and self._barriers.get(self._lanes[number].worker, 0) > number:
                self._table.put(oid, scan.STALE_LANE)

    def _deliver(self, cut: Gulp) -> list[tuple[int, Delivery]]:
        touched = self._collect(cut)
        ended_for: set[int] = set()
        if cut.has_ended:
            ended_for, self._open_workers = self._open_workers, set()
        is_spilled = cut.is_open and self._waiting_bytes > self._spill_bytes
        if is_spilled:
            touched = self._spill(cut)
        changes = self._changes(touched, self._release(cut, is_spilled=is_spilled), cut)
        return [
            (worker, self._delivery(changes.get(worker, []), is_open=worker in self._open_workers))
            for worker in sorted(changes.keys() | ended_for)
        ]

    def _collect(self, cut: Gulp) -> list[Lane]:
        """Move the rows to their lanes, close those of whole transactions; return the lanes that have any."""
        rows, sheet = int(cut.cursor[scan.ROWS]), cut.sheet
        # While the transaction open before this gulp stays open, all rows are its own: OPEN_ROW is then still 0.
        open_row = int(cut.cursor[scan.OPEN_ROW]) if cut.is_open else rows
        order, lanes = scan.group(sheet.lane, sheet.length, rows, open_row, len(self._lanes))
        busy = set(np.flatnonzero(lanes[:, 1]).tolist())
        if self._begun is not None:
            busy.update(number for number, lane in enumerate(self._lanes) if lane.waiting_bytes)
        touched = [(self._lanes[number], *lanes[number].tolist()) for number in sorted(busy)]
        for lane, first, count, size, whole, whole_bytes in touched:
            if cut.has_ended and (whole or lane.waiting_bytes):
                lane.append(cut, order[first : first + whole], whole_bytes)
                lane.close(cut, self._source)
            if count > whole:
                lane.append(cut, order[first + whole : first + count], size - whole_bytes)
        touched_lanes = [entry[0] for entry in touched]
        self._waiting_bytes = sum(lane.waiting_bytes for lane in touched_lanes)
        return touched_lanes

    def _spill(self, cut: Gulp) -> list[Lane]:
        for lane in self._lanes:
            if lane.waiting_bytes:
                lane.close(cut, self._source)
                self._open_workers.add(lane.worker)
        self._waiting_bytes = 0
        return [lane for lane in self._lanes if lane.segments]

    def _release(self, cut: Gulp, *, is_spilled: bool) -> list[PendingTruncation]:
        """Take out the truncations that go now; those of the open transaction wait, unless it is spilled."""
        if not self._truncations:
            return []
        open_transaction = cut.last_transaction if cut.is_open else -1
        waiting = [pending for pending in self._truncations if pending.transaction == open_transaction]
        ready = [pending for pending in self._truncations if pending.transaction != open_transaction]
        if is_spilled:
            self._open_workers.update(pending.worker for pending in waiting)
            ready, waiting = ready + waiting, []
        self._truncations = [_carried(pending) for pending in waiting]
        return ready

    def _changes(
        self, touched: Sequence[Lane], truncations: Sequence[PendingTruncation], cut: Gulp
    ) -> dict[int, list[Change]]:
        """Return the changes per worker, in the order of their lanes, truncations between them."""
        changes: dict[int, list[Change]] = {}
        numbers = {id(lane): number for number, lane in enumerate(self._lanes)} if truncations else {}
        places = [pending.place for pending in truncations]
        done = 0
        for lane in touched:
            upto = bisect.bisect_right(places, numbers[id(lane)]) if truncations else 0
            for pending in truncations[done:upto]:
                changes.setdefault(pending.worker, []).append(cut.truncation(self._source, pending))
            done = max(done, upto)
            if lane.segments:
                changes.setdefault(lane.worker, []).extend(lane.segments)
                lane.segments = []
        for pending in truncations[done:]:
            changes.setdefault(pending.worker, []).append(cut.truncation(self._source, pending))
        return changes

    def _delivery(self, changes: Sequence[Change], *, is_open: bool) -> Delivery:
        size = len(changes) * _CHANGE_BYTES
        changes = [self._row_limit.check(one) if isinstance(one, Segment) else one for one in changes]
        for change in changes:
            if isinstance(change, Segment):
                self.rows += len(change.lengths)
                size += len(change.data) + change.lengths.nbytes
                size += len(change.transactions.xid) * _TRANSACTION_BYTES
        return Delivery(
            source=self._source,
            changes=tuple(changes),
            through=int(self._marks[scan.LAST_END_LSN]),
            bytes=size,
            epoch=self._epoch,
            is_open=is_open,
        )

    def _note(self, cut: Gulp) -> None:
        self.dropped_rows += int(cut.cursor[scan.DROPPED_ROWS])
        self.transactions += int(cut.cursor[scan.ENDED])
        self._is_reply_wanted |= bool(cut.cursor[scan.REPLY_WANTED])
        if (commit_us := cut.commit_us) is not None:
            self.commit_us = commit_us
        self._begun = cut.begun()
        for lane in self._lanes if cut.is_open else ():
            lane.keep()
        self._settle()

    def _settle(self) -> None:
        """Forget the lanes that others have replaced, once no truncation depends on the lanes' order any more."""
        if self._truncations or not (self._has_stale_lanes or self._barriers):
            return
        current = set(self._lane_of.values())
        kept = [n for n, lane in enumerate(self._lanes) if n in current or lane.waiting_bytes]
        places = {number: place for place, number in enumerate(kept)}
        self._lanes = [self._lanes[number] for number in kept]
        self._lane_of = {oid: places.get(number, scan.NO_LANE) for oid, number in self._lane_of.items()}
        for oid, number in self._lane_of.items():
            self._table.put(oid, number)
        self._barriers = {}
        self._has_stale_lanes = len(self._lanes) > len(current - {scan.NO_LANE})


def _as_it_is(relation: Relation, _commit_lsn: int, _xid: int) -> Relation:
    return relation


def _untold(_relation: Relation, _commit_lsn: int, _xid: int) -> None:
    pass


def _let_be(_relation: Relation, _commit_lsn: int, _size: int) -> bool:
    return False


def _unseen(_relation: Relation, _commit_lsn: int) -> None:
    pass


_NO_LIMIT = RowLimit(sys.maxsize, _let_be)


def _carried(pending: PendingTruncation) -> PendingTruncation:
    return PendingTruncation(place=pending.place, worker=pending.worker, relation=pending.relation, transaction=0)


__all__ = ["Assembler", "Follow", "OnTruncate", "TypeLookup"]
