"""A short piece of a slot's stream, read by itself: what happened to one table between two LSNs.

For comparing, not for replicating: nothing is ever confirmed, so the slot stays where it was. A temporary slot can
be streamed by the session that made it alone, so the connection is handed in; streaming ends its exported snapshot.
"""

from __future__ import annotations

import dataclasses
import select
import time
from typing import TYPE_CHECKING

import numpy as np
from psycopg import pq

from kuvasz import lsn
from kuvasz.decode import messages
from kuvasz.errors import SourceError, place_of
from kuvasz.model import POSTGRES_EPOCH_US, Segment, Transactions, Truncation
from kuvasz.route import scan
from kuvasz.route.assembler import Assembler
from kuvasz.source import conninfo, failure, sql
from kuvasz.source.drain.best import best_drain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kuvasz.model import PgType, Relation

#: Without a byte for so long the server is taken for dead.
_SILENCE_S = 60.0
_ASK_EVERY_S = 0.5
_GULP_BYTES = 4 << 20


class Window:
    """The stream of a slot from an LSN on, read forward in steps. Call `close` at the end.

    Args:
        pgconn: A replication session, idle; it is taken over. If the slot is temporary, the one that made it.
        slot: The slot's name.
        publications: The publications' names.
        oid: The OID of the table whose changes are wanted; messages have the name that it had at their time.
        types: Resolves type oids.
        source: Name of the source.
    """

    def __init__(
        self,
        pgconn: pq.abc.PGconn,
        slot: str,
        publications: Sequence[str],
        oid: int,
        types: Callable[[list[int]], dict[int, PgType]],
        source: str,
    ) -> None:
        self._pgconn = pgconn
        self._place = place_of(source)
        self._doing = f"stream slot {slot}"
        self._oid = oid
        self._assembler = Assembler(source, self, types, 64 << 20)
        self._kept: list[Segment | Truncation] = []
        published = sql.literal(",".join(map(sql.identifier, publications)))
        options = f"proto_version '1', publication_names {published}"
        self._send(f"START_REPLICATION SLOT {sql.identifier(slot)} LOGICAL 0/0 ({options})")
        pgconn.nonblocking = 1
        self._drain = best_drain(pgconn)

    def worker(self, source: str, relation: Relation) -> int | None:  # noqa: ARG002 (it is `kuvasz.ports.Routes`)
        """Route the wanted table alone."""
        return 0 if relation.oid == self._oid else None

    def read(self, end: int) -> Iterator[Segment | Truncation]:
        """Yield the table's further changes of transactions whose commit record starts before an LSN.

        What came and lies behind `end` is kept for the next call.

        Raises:
            SourceError: The stream broke or ended.
        """
        kept, self._kept = self._kept, []
        yield from self._before(kept, end)
        asked = 0.0
        heard = time.monotonic()
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN)
        while self._assembler.received_lsn < end:
            now = time.monotonic()
            if now - asked >= _ASK_EVERY_S:  # an idle server tells its LSN when asked, else twice a minute
                self._ask()
                asked = now
            if not self._take():
                if time.monotonic() - heard > _SILENCE_S:
                    raise self._broken(f"nothing came for {_SILENCE_S:g} s")
                poll.poll(_ASK_EVERY_S * 1000)
                continue
            heard = time.monotonic()
            yield from self._before(self._route(), end)

    def close(self) -> None:
        """Close the connection; a temporary slot goes with it."""
        self._pgconn.finish()

    def _take(self) -> bool:
        with failure.translated(self._place, self._doing):
            added = self._drain.drain(_GULP_BYTES)
        if not added and (self._drain.is_ended or self._drain.is_lost):
            raise self._broken(self._pgconn.get_error_message())
        return bool(added)

    def _before(self, changes: Iterable[Segment | Truncation], end: int) -> Iterator[Segment | Truncation]:
        for change in changes:
            earlier, later = split(change, end)
            if later is not None:
                self._kept.append(later)
            if earlier is not None:
                yield earlier

    def _route(self) -> list[Segment | Truncation]:
        gulp, lengths = self._drain.gulp()
        view = scan.frozen_view(gulp)
        deliveries = self._assembler.feed(view, lengths)
        del view, gulp, lengths
        self._drain.clear()
        return [change for _, delivery in deliveries for change in delivery.changes]

    def _ask(self) -> None:
        payload = messages.status_update(
            written=0, flushed=0, now_us=time.time_ns() // 1000 - POSTGRES_EPOCH_US, is_reply_wanted=True
        )
        with failure.translated(self._place, self._doing):
            self._pgconn.put_copy_data(payload)
            self._pgconn.flush()

    def _send(self, command: str) -> None:
        with failure.translated(self._place, self._doing):
            self._pgconn.send_query(command.encode())
            result = conninfo.answer(self._pgconn, may_copy=True)
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            state = None if result is None else result.error_field(pq.DiagnosticField.SQLSTATE)
            text = "no answer" if result is None else result.get_error_message()
            raise failure.of(state.decode() if state else None, text, place=self._place, doing=self._doing)

    def _broken(self, why: str) -> SourceError:
        return SourceError(f"{self._place}: cannot {self._doing}: {why.strip() or 'the stream ended'}",
                           hint="run it again")  # fmt: skip


def copy_slot(pgconn: pq.abc.PGconn, slot: str, name: str, source: str) -> int:
    """Make a temporary slot that begins where another one stands, which may be streamed meanwhile and stays there.

    Args:
        pgconn: A replication session, idle. The slot goes with it.
        slot: The other slot.
        name: The new one's.
        source: Name of the source.

    Returns:
        The LSN at which it begins: transactions whose commit records start there, or later, will come.

    Raises:
        SourceError: The server cannot, or not now.
    """
    place, doing = place_of(source), f"copy slot {slot}"
    statement = (
        f"SELECT pg_copy_logical_replication_slot({sql.literal(slot)}, {sql.literal(name)}, true);"
        f" SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = {sql.literal(name)}"
    )
    with failure.translated(place, doing):
        pgconn.send_query(statement.encode())
        found, last = None, None
        while (result := conninfo.answer(pgconn)) is not None:
            found, last = last, result
    if found is None or last is None or last.status != pq.ExecStatus.TUPLES_OK or last.ntuples != 1:
        state = None if last is None else last.error_field(pq.DiagnosticField.SQLSTATE)
        text = pgconn.get_error_message() if last is None else last.get_error_message()
        raise failure.of(state.decode() if state else None, text, place=place, doing=doing)
    return lsn.parse((last.get_value(0, 0) or b"0/0").decode())


def split(change: Segment | Truncation, end: int) -> tuple[Segment | Truncation | None, Segment | Truncation | None]:
    """Return the parts of a change whose commit records start before an LSN, and at or after it."""
    if isinstance(change, Truncation):
        return (change, None) if change.commit_lsn < end else (None, change)
    count = int(np.searchsorted(change.transactions.commit_lsn, end, side="left"))
    if count == len(change.transactions.commit_lsn):
        return change, None
    if count == 0:
        return None, change
    rows = int(change.transactions.row_end[count - 1])
    size = int(change.lengths[:rows].sum(dtype=np.int64))
    return (
        dataclasses.replace(change, data=change.data[:size], lengths=change.lengths[:rows],
                            transactions=_transactions(change.transactions, slice(0, count), 0)),
        dataclasses.replace(change, data=change.data[size:], lengths=change.lengths[rows:],
                            transactions=_transactions(change.transactions, slice(count, None), rows)),
    )  # fmt: skip


def _transactions(whole: Transactions, part: slice, rows_before: int) -> Transactions:
    return Transactions(
        commit_lsn=whole.commit_lsn[part], end_lsn=whole.end_lsn[part], commit_us=whole.commit_us[part],
        xid=whole.xid[part], row_end=(whole.row_end[part] - np.uint32(rows_before)).astype(np.uint32),
    )  # fmt: skip
