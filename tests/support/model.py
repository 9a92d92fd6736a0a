"""What each table type holds after any transactions of a source: plain Python, written from the contract alone.

A source is a list of transactions, each with its events in order. A row is a mapping of column name to value; a key
is the tuple of its key columns' values. The model knows rows whole: how a large unchanged value travels is not its
business.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

FIRST = datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC)
FOREVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
_INSTANT = datetime.timedelta(microseconds=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One change: `op` is I, U, D or T; `old` is the row before it, `new` the one after it.

    An `op` that is empty is one that counts and leaves nothing.
    """

    op: str
    old: Row | None = None
    new: Row | None = None
    bytes: int = 0  #: of its message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transaction:
    """The events of one table in one transaction."""

    events: Sequence[Event]
    at: datetime.datetime  #: commit time
    lsn: int = 0
    xid: int = 0


def clone(copied: Iterable[Row], transactions: Iterable[Transaction]) -> list[Row]:
    """Return the rows as the source has them; equal rows of a table without a key are there as often as there."""
    rows: dict[int, Row] = {}  # by identity: an event tells of the very object that an earlier one brought
    for row in copied:
        assert id(row) not in rows
        rows[id(row)] = row
    for event in _events(transactions):
        if event.op == "T":
            rows.clear()
        if event.old is not None and rows.pop(id(event.old), None) is None:
            del rows[next(found for found, row in rows.items() if row == event.old)]  # an equal one, or StopIteration
        if event.new is not None:
            assert id(event.new) not in rows
            rows[id(event.new)] = event.new
    return list(rows.values())


def append(copied: Iterable[Row], transactions: Iterable[Transaction]) -> list[Row]:
    """Return every row that ever was."""
    return [*copied, *(event.new for event in _events(transactions) if event.new is not None)]


def changelog(
    copied: Iterable[Row],
    transactions: Iterable[Transaction],
    key: Sequence[str],
    *,
    columns: Sequence[str],
    copied_lsn: int = 0,
    is_full: bool = False,
) -> list[Row]:
    """Return a row per event; `is_full`: the source logs whole old rows."""
    facts = {"_op": "R", "_lsn": copied_lsn, "_ordinal": None, "_xid": None, "_commit_ts": None, "_old_key": None}
    rows: list[Row] = [{**row, **facts} for row in copied]
    nothing = dict.fromkeys(columns)
    for transaction in transactions:
        for ordinal, event in enumerate(transaction.events):
            if not event.op:
                continue
            values: Row = event.new or {}
            if event.op == "D":
                assert event.old is not None
                values = event.old if is_full else {name: event.old[name] for name in key}
            moved = event.op == "U" and event.old is not None and event.new is not None and (
                _key(event.old, key) != _key(event.new, key)
            )  # fmt: skip
            rows.append(
                {
                    **nothing,
                    **values,
                    "_op": event.op,
                    "_lsn": transaction.lsn,
                    "_ordinal": ordinal,
                    "_xid": transaction.xid,
                    "_commit_ts": transaction.at,
                    "_old_key": {name: _text((event.old or {})[name]) for name in key} if moved else None,
                }
            )
    return rows


def history(copied: Iterable[Row], transactions: Iterable[Transaction], key: Sequence[str]) -> list[Row]:
    """Return every version of every key."""
    versions: dict[tuple, list[dict[str, Any]]] = {}
    for row in copied:
        versions[_key(row, key)] = [_version(row, FIRST)]
    for transaction in transactions:
        final: dict[tuple, Row | None] = {}
        for event in transaction.events:
            if event.op == "T":
                final |= {
                    found: None for found, known in versions.items() if known and known[-1]["kvsz_end"] == FOREVER
                }
                final |= dict.fromkeys(final)
            if event.old is not None:
                final[_key(event.old, key)] = None
            if event.new is not None:
                final[_key(event.new, key)] = event.new
        for found, newest in final.items():
            _change(versions.setdefault(found, []), newest, transaction.at)
    return [version for known in versions.values() for version in known]


def filtered(
    transactions: Iterable[Transaction], passes: Callable[[Row], bool], *, is_full: bool = False
) -> list[Transaction]:
    """Return transactions as a filter leaves them: a row that does not pass is a deletion of what was before it.

    Without whole old rows nobody knows whether that had passed.
    """
    return [
        dataclasses.replace(one, events=[_filtered(event, passes, is_full=is_full) for event in one.events])
        for one in transactions
    ]


def _filtered(event: Event, passes: Callable[[Row], bool], *, is_full: bool) -> Event:
    was_in = event.old is not None and (not is_full or passes(event.old))
    if event.op == "T" or (event.new is not None and passes(event.new)):
        return event
    return dataclasses.replace(event, op="D", new=None) if was_in else Event(op="")


def rejecting(
    transactions: Iterable[Transaction], fits: Callable[[Row, int], bool], *, is_changelog: bool = False,
    is_full: bool = False,
) -> list[Transaction]:  # fmt: skip
    """Return transactions without the rows that do not fit: what they replaced is gone, as if it was deleted.

    A changelog shows nothing of such a change, nor, if whole old rows are logged, of the deletion of such a row.

    Args:
        transactions: As they are at the source.
        fits: Whether a row fits, with the bytes of the message that brings it.
        is_changelog: The table shows events.
        is_full: The source logs whole old rows.
    """

    def sifted(event: Event) -> Event:
        is_misfit = event.new is not None and not fits(event.new, event.bytes)
        if not is_changelog:
            return (Event(op="D", old=event.old) if event.old is not None else Event(op="")) if is_misfit else event
        is_misfit |= event.op == "D" and is_full and event.old is not None and not fits(event.old, event.bytes)
        return Event(op="") if is_misfit else event

    return [dataclasses.replace(one, events=[sifted(event) for event in one.events]) for one in transactions]


def _change(known: list[dict[str, Any]], row: Row | None, at: datetime.datetime) -> None:
    """Let a key have another row, or none, from an instant on.

    No version is empty, none overlaps another, whatever the source's clock did: a version that would end at or
    before its start is replaced by the next, which takes its start; one that is deleted then ends an instant after
    its start.
    """
    last = known[-1] if known else None
    is_open = last is not None and last["kvsz_end"] == FOREVER
    if row is None:
        if last is not None and is_open:
            last["kvsz_end"] = max(at, last["kvsz_start"] + _INSTANT)
            last["kvsz_deleted"] = True
        return
    if last is not None and is_open and at <= last["kvsz_start"]:
        known[-1] = _version(row, last["kvsz_start"])
        return
    if last is not None and is_open:
        last["kvsz_end"] = at
    known.append(_version(row, at if last is None else max(at, last["kvsz_end"])))


def _version(row: Row, start: datetime.datetime) -> dict[str, Any]:
    return {**row, "kvsz_start": start, "kvsz_end": FOREVER, "kvsz_deleted": False}


def _events(transactions: Iterable[Transaction]) -> Iterable[Event]:
    for transaction in transactions:
        yield from transaction.events


def _key(row: Row, key: Sequence[str]) -> tuple:
    return tuple(row[name] for name in key)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
