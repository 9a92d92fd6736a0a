"""Rows that do not fit their table are taken out of a chunk, and written down (`on_bad_value: reject`).

Pure. A chunk is sifted only when it was refused as it is. A row that is taken out is no row of the lake from then
on, so its key's earlier version goes with it, as where a row leaves the filter: what is left of the change is a
deletion. A row does not fit either for which an expression fails, or that has a value for one which cannot be read.
What has no key that can be read is left out as a whole, since no table can have it. A row behind it that leaves out a
large value of it is taken out with it. Of a clone only the newest row of each key is looked at: what it replaced
nobody sees, and a value that it left out is the one that the lake has from before.

With `keeps_earlier` the earlier version of a clone's row stays: of each key what is left is its newest version that
fits, be it of before the chunk, unless the row is gone or has another key by now.

What is written down of a row is what the lake would show of it: masked as there, without the columns that the map
leaves out.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kuvasz.decode import columns, tuples
from kuvasz.decode.cells import NULL, UNCHANGED, Cells
from kuvasz.decode.refusals import ValueRefused
from kuvasz.decode.tuples import DELETE, INSERT, KEY, UPDATE, RowChanges
from kuvasz.errors import InternalError
from kuvasz.fold import fold
from kuvasz.fold.keys import Keys
from kuvasz.model import POSTGRES_EPOCH_US, Int32s, TableType
from kuvasz.modes.clone import take_key_from_old
from kuvasz.modes.row_rules import REDACTED, key_of, pseudonym
from kuvasz.modes.shape import RefusedValue, Shape
from kuvasz.modes.transaction_facts import Facts

COPIED: Final = "R"  #: the operation of a row that a copy brought

_LEFT_OUT: Final = "leaves out a large value, which only an earlier version has that was rejected"

#: Stands behind a value of which not all is written down.
CUT: Final = "…"

#: Characters of a value that are written down.
_KEPT_CHARACTERS = 64 * 1024

#: Notes that are made at a time.
_NOTES = 1024

#: What is known of a row where it is taken out; the lake adds which target it was for, and when.
RECORD: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("table_name", pa.string()),
        pa.field("operation", pa.string()),
        pa.field("lsn", pa.int64()),
        pa.field("ordinal", pa.int64()),
        pa.field("xid", pa.int64()),
        pa.field("committed_at", pa.timestamp("us", "UTC")),
        pa.field("key", pa.string()),
        pa.field("column_name", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.string()),
        pa.field("raw_row", pa.string()),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a row does not fit: a column, and what is wrong with its value."""

    column: str
    reason: str
    index: int = -1  #: of the field that shows the value, -1: none does


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """A chunk without the rows that do not fit."""

    changes: RowChanges
    facts: Facts | None
    rejected: pa.Table  #: as `RECORD` says


def sift(shape: Shape, changes: RowChanges, facts: Facts | None) -> Sifted:
    """Take the rows out of a chunk that do not fit.

    Args:
        shape: The shape of the chunk.
        changes: The chunk, as it was split.
        facts: What its rows have of their transactions.

    Raises:
        DecodeError: The messages are not what the protocol says.
    """
    return _SiftedChunk(shape, changes, facts).run()


class _SiftedChunk:
    """One chunk on its way. Use once."""

    def __init__(self, shape: Shape, changes: RowChanges, facts: Facts | None) -> None:
        self._shape = shape
        self._changes = changes
        self._said = changes  # as it came: what is written down of it
        self._facts = facts
        self._row = np.arange(len(changes.tag), dtype=np.int32)  # of each row that is left: which one it was
        self._found: dict[int, Misfit] = {}  # rows that are taken out, by their number in the chunk as it came

    def run(self) -> Sifted:
        shape = self._shape
        self._blank(np.flatnonzero(self._changes.tag == DELETE))
        if shape.key:
            take_key_from_old(shape, self._changes)
        tuples.fill_unchanged(self._changes, np.full(len(self._changes.tag), -1, np.int32))
        self._drop_unreadable()
        counts = np.flatnonzero(self._changes.tag != DELETE).astype(np.int32)
        if shape.key:
            folded = self._folded()
            tuples.fill_unchanged(self._changes, folded.previous)
            counts = folded.keep if shape.mode is TableType.CLONE else counts
        if shape.keeps_earlier and shape.key:
            self._withdraw()
            return self._sifted()
        self._take_out(self._misfits(counts))
        if shape.key:
            self._take_out(self._orphans())
        return self._sifted()

    def _sifted(self) -> Sifted:
        facts = None if self._facts is None else self._facts.of_rows(self._row)
        return Sifted(changes=self._changes, facts=facts, rejected=self._written_down())

    # What identifies a row

    def _drop_unreadable(self) -> None:
        """Leave out rows that nothing can identify; of those that had another identity the deletion of that stays."""
        changes, shape = self._changes, self._shape
        indices = shape.key or (range(len(shape.bindings)) if shape.is_bag else ())
        is_new = np.flatnonzero(changes.tag != DELETE).astype(np.int32)
        new = _misfits(shape, changes.new, indices, is_new, is_whole=shape.is_bag)
        message_of = np.full(changes.old.row_count, -1, np.int32)
        has_old = np.flatnonzero(changes.old_row >= 0).astype(np.int32)
        message_of[changes.old_row[has_old]] = has_old
        looked_at = np.flatnonzero(message_of >= 0).astype(np.int32)
        if shape.is_bag and changes.old_outside is not None:
            looked_at = looked_at[~changes.old_outside[looked_at]]
        unread = _misfits(shape, changes.old, indices, looked_at, is_whole=shape.is_bag)
        old = {int(message_of[row]): one for row, one in unread.items()}
        if not new and not old:
            return
        tag, old_row, old_tag = changes.tag.copy(), changes.old_row.copy(), changes.old_tag.copy()
        gone = []
        for row in sorted(new.keys() | old.keys()):
            if row in new and row not in old and old_row[row] >= 0:
                tag[row] = DELETE
                self._found[row] = new[row]
            elif row in new or tag[row] == DELETE:
                gone.append(row)
                if tag[row] != DELETE or changes.outside is None or not changes.outside[row]:
                    self._found[row] = new.get(row) or old[row]
            elif (changes.new.length[:, row] == UNCHANGED).any():
                gone.append(row)
                self._found[row] = dataclasses.replace(old[row], reason=_LEFT_OUT)
            else:  # its earlier version was never here
                tag[row], old_row[row], old_tag[row] = INSERT, -1, 0
        self._changes = dataclasses.replace(changes, tag=tag, old_row=old_row, old_tag=old_tag)
        self._blank(np.flatnonzero(tag == DELETE))
        self._mark_unseen(sorted(self._found.keys() - set(gone)))
        self._keep(np.setdiff1d(np.arange(len(tag)), gone).astype(np.int32))

    # What it holds

    def _folded(self) -> fold.Folded:
        shape, changes = self._shape, self._changes
        return fold.fold(changes.tag, shape.keys(changes.new), shape.keys(changes.old), changes.old_row)

    def _misfits(self, counts: Int32s) -> dict[int, Misfit]:
        """Return the rows that do not fit, by their number among those that are left.

        Args:
            counts: Rows whose new version the lake is to have.
        """
        shape, changes = self._shape, self._changes
        rest = [index for index in range(len(shape.bindings)) if index not in shape.key]
        if shape.is_bag:
            return {}  # all of it identifies a row
        found = _misfits(shape, changes.new, rest, counts)
        if shape.mode is TableType.CHANGELOG:  # shows what was deleted, too
            is_whole = (changes.old_row >= 0) & (changes.old_tag != KEY)  # else it shows the key alone
            gone = np.flatnonzero((changes.tag == DELETE) & is_whole).astype(np.int32)
            if changes.outside is not None:
                gone = gone[~changes.outside[gone]]
            message_of = dict(zip(changes.old_row[gone].tolist(), gone.tolist(), strict=True))
            old = _misfits(shape, changes.old, rest, changes.old_row[gone].astype(np.int32))
            found |= {message_of[row]: one for row, one in old.items()}
        return found

    def _orphans(self) -> dict[int, Misfit]:
        """Return the rows that leave out a value which only a row has that was taken out."""
        if not self._found:
            return {}
        shape, changes = self._shape, self._changes
        is_open = (changes.new.length == UNCHANGED).any(axis=0) & (changes.tag == UPDATE)
        waits = np.flatnonzero(is_open).astype(np.int32)
        if shape.transform is not None and len(waits):
            waits = shape.waiting(changes.new, waits)
        if len(waits) == 0:
            return {}
        folded = self._folded()
        if shape.mode is TableType.CLONE:
            waits = waits[np.isin(waits, folded.keep)]
        lost = waits[folded.root[waits] < 0]
        return {row: Misfit(column="", reason=_LEFT_OUT) for row in lost.tolist()}

    def _take_out(self, misfits: Mapping[int, Misfit]) -> None:
        """Turn rows into deletions of their keys; where there is no key to go by they are left out."""
        if not misfits:
            return
        for row, misfit in misfits.items():
            self._found[int(self._row[row])] = misfit
        rows = np.array(sorted(misfits), np.int32)
        if not self._shape.key:
            self._keep(np.setdiff1d(np.arange(len(self._row)), rows).astype(np.int32))
            return
        self._changes = _deleting(self._changes, rows)
        self._mark_unseen(rows.tolist())

    def _withdraw(self) -> None:
        """Have each key end with its newest row that fits; one whose row has another key by now is gone."""
        while misfits := self._misfits(self._folded().keep):
            rows = np.array(sorted(misfits), np.int32)
            old_row = self._changes.old_row[rows]
            has_moved = old_row >= 0
            old, new = self._changes.old, self._changes.new
            before, now = self._shape.keys(old, old_row[has_moved]), self._shape.keys(new, rows[has_moved])
            has_moved[has_moved] = (before.hi != now.hi) | (before.lo != now.lo)
            self._take_out({int(row): misfits[int(row)] for row in rows[has_moved]})
            self._found |= {int(self._row[row]): misfits[int(row)] for row in rows}
            self._keep(np.setdiff1d(np.arange(len(self._row)), rows[~has_moved]).astype(np.int32))

    def _blank(self, rows: npt.NDArray[np.intp]) -> None:
        """Have nobody look at what rows bring that are deletions by now."""
        new = self._changes.new
        length = new.length.copy()
        length[:, rows] = NULL
        self._changes = dataclasses.replace(self._changes, new=dataclasses.replace(new, length=length))

    def _mark_unseen(self, rows: Sequence[int]) -> None:
        """Have a changelog show nothing of rows; what becomes of their keys is for its index alone."""
        if self._shape.mode is not TableType.CHANGELOG or not rows:
            return
        changes = self._changes
        outside = np.zeros(len(changes.tag), np.bool_) if changes.outside is None else changes.outside.copy()
        outside[rows] = True
        self._changes = dataclasses.replace(changes, outside=outside)

    def _keep(self, rows: Int32s) -> None:
        self._changes, self._row = _taken(self._changes, rows), self._row[rows]

    # What is written down

    def _written_down(self) -> pa.Table:
        said, facts = self._said, self._facts
        runs = None if facts is None else facts.runs()
        ordinals = None if facts is None else facts.ordinals()

        def note(row: int, misfit: Misfit) -> dict[str, object]:
            is_gone = said.tag[row] == DELETE
            cells, at = (said.old, int(said.old_row[row])) if is_gone else (said.new, row)
            has_key_alone = is_gone and said.old_tag[row] == KEY
            found = _note(self._shape, cells, at, misfit, has_key_alone=bool(has_key_alone))
            found |= {"operation": chr(said.tag[row])}
            if facts is not None and runs is not None and ordinals is not None:
                run = runs[row]
                found |= {
                    "lsn": int(facts.commit_lsn[run]), "ordinal": int(ordinals[row]), "xid": int(facts.xid[run]),
                    "committed_at": int(facts.commit_us[run]) + POSTGRES_EPOCH_US,
                }  # fmt: skip
            return found

        return _record(note(row, misfit) for row, misfit in sorted(self._found.items()))


def _deleting(changes: RowChanges, rows: Int32s) -> RowChanges:
    """Return changes of which some rows are deletions: of their old keys, or else of their own."""
    tag, old_row, old_tag = changes.tag.copy(), changes.old_row.copy(), changes.old_tag.copy()
    lone = rows[old_row[rows] < 0]
    tag[rows] = DELETE
    begin = changes.old.row_count
    old_row[lone] = np.arange(begin, begin + len(lone), dtype=np.int32)
    old_tag[lone] = KEY
    added = _cells(changes.new, lone)
    outside = changes.old_outside
    return dataclasses.replace(
        changes,
        tag=tag,
        old=_joined(changes.old, dataclasses.replace(added, length=np.maximum(added.length, NULL))),
        old_row=old_row,
        old_tag=old_tag,
        old_outside=None if outside is None else np.concatenate((outside, np.zeros(len(lone), np.bool_))),
    )


def _taken(changes: RowChanges, rows: Int32s) -> RowChanges:
    """Return some of the changes."""
    old_row = changes.old_row[rows]
    has_old = old_row >= 0
    old = old_row[has_old]
    return RowChanges(
        tag=changes.tag[rows],
        new=_cells(changes.new, rows),
        old=_cells(changes.old, old),
        old_row=np.where(has_old, np.cumsum(has_old) - 1, -1).astype(np.int32),
        old_tag=changes.old_tag[rows],
        outside=None if changes.outside is None else changes.outside[rows],
        old_outside=None if changes.old_outside is None else changes.old_outside[old],
    )


def _cells(cells: Cells, rows: Int32s) -> Cells:
    return Cells(
        data=cells.data,
        start=np.take(cells.start, rows, axis=1),
        length=np.take(cells.length, rows, axis=1),
        computed=tuple(column.take(pa.array(rows)) for column in cells.computed),
        unknown=tuple(one[rows] for one in cells.unknown),
        whose=None if cells.whose is None else cells.whose[rows],
    )


def _joined(first: Cells, then: Cells) -> Cells:
    pairs = zip(first.computed, then.computed, strict=True)
    whose = None
    if first.whose is not None and then.whose is not None:
        whose = np.concatenate((first.whose, then.whose))
    return Cells(
        data=first.data,
        start=np.concatenate((first.start, then.start), axis=1),
        length=np.concatenate((first.length, then.length), axis=1),
        computed=tuple(pa.concat_arrays([one, other]) for one, other in pairs),
        unknown=tuple(np.concatenate(pair) for pair in zip(first.unknown, then.unknown, strict=True)),
        whose=whose,
    )


def origins(facts: Facts, rows: Int32s) -> pa.Table:
    """Return what `RECORD` has of some rows' transactions, one row for each."""
    run = facts.runs()[rows]
    committed = pa.array(facts.commit_us[run] + POSTGRES_EPOCH_US).cast(pa.timestamp("us", "UTC"))
    columns = [pa.array(facts.commit_lsn[run]), pa.array(facts.ordinals()[rows]), pa.array(facts.xid[run]), committed]
    return pa.table(columns, names=["lsn", "ordinal", "xid", "committed_at"])


def orphaned(
    rows: pa.Table, origins: pa.Table, key: Sequence[str], unsent: Sequence[npt.NDArray[np.bool_]]
) -> pa.Table:
    """Return what is written down of rows that leave out a value of a rejected one, but for whose they are.

    Args:
        rows: Decoded, as the lake would show them.
        origins: As `origins` gave them.
        key: Names of the key's columns.
        unsent: Per column which rows leave it out; empty where none does.
    """

    def note(number: int) -> dict[str, object]:
        row: dict[str, object]
        origin: dict[str, object]
        (row,), (origin,) = rows.slice(number, 1).to_pylist(), origins.slice(number, 1).to_pylist()
        shown = {
            name: None if value is None else _cut(text_of(value, rows.schema.field(name).type))
            for (name, value), mask in zip(row.items(), unsent, strict=True)
            if not (len(mask) and mask[number]) and (name != "sid" or name in key)
        }
        text = json.dumps({name: shown[name] for name in key}, ensure_ascii=False)
        whole = json.dumps(shown, ensure_ascii=False)
        why: dict[str, object] = {"operation": "U", "key": text, "reason": _LEFT_OUT, "raw_row": whole}
        return origin | why

    return _record(map(note, range(rows.num_rows)))


def text_of(value: object, kind: pa.DataType) -> str:
    """Return the text that PostgreSQL has of a value of the lake, in the time zone UTC; of lists and maps Python's.

    Args:
        value: As Arrow gives it.
        kind: Its type.
    """
    match value:
        case bool():
            return "t" if value else "f"
        case bytes():
            return str(uuid.UUID(bytes=value)) if pa.types.is_fixed_size_binary(kind) else f"\\x{value.hex()}"
        case float():
            return repr(value).removesuffix(".0")
        case datetime.datetime():
            text = _without_zeros(value.replace(tzinfo=None).isoformat(sep=" "))
            return text if value.tzinfo is None else f"{text}+00"
        case datetime.time():
            return _without_zeros(value.isoformat())
        case _:
            return str(value)


def _without_zeros(text: str) -> str:
    whole, dot, part = text.partition(".")
    return f"{whole}{dot}{part.rstrip('0')}" if part else whole


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SiftedCopy:
    """Copied rows without those that do not fit."""

    kept: Int32s
    rejected: pa.Table  #: as `RECORD` says
    keys: Keys | None = None  #: of those that do not fit; only where their earlier versions stay


def sift_copied(shape: Shape, cells: Cells, kept: Int32s | None, lsn: int) -> SiftedCopy:
    """Take the rows out of a piece of a copy that do not fit.

    Args:
        shape: The shape of the copy.
        cells: Its rows.
        kept: The rows that pass the filter; None: all.
        lsn: The LSN of the snapshot.
    """
    rows = np.arange(cells.row_count, dtype=np.int32) if kept is None else kept
    found = _misfits(shape, cells, range(len(shape.bindings)), rows)
    is_fine = ~np.isin(rows, np.fromiter(found, np.int32, len(found)))
    notes = (
        _note(shape, cells, row, misfit) | {"operation": COPIED, "lsn": lsn, "ordinal": _number_of(cells, row)}
        for row, misfit in sorted(found.items())
    )
    keys = _readable_keys(shape, cells, found) if shape.keeps_earlier else None
    return SiftedCopy(kept=rows[is_fine], rejected=_record(notes), keys=keys)


def _readable_keys(shape: Shape, cells: Cells, found: Mapping[int, Misfit]) -> Keys:
    """Return the keys of rows that do not fit, but of those that do not for their keys."""
    rows = np.array(sorted(found), np.int32)
    unread = _misfits(shape, cells, shape.key, rows, is_whole=False)
    return shape.keys(cells, rows[~np.isin(rows, np.fromiter(unread, np.int32, len(unread)))])


def _record(notes: Iterator[dict[str, object]]) -> pa.Table:
    """Return notes as `RECORD` says. Few of them are Python's at a time, for there they take ten times the room."""
    parts = [RECORD.empty_table()]
    while some := list(itertools.islice(notes, _NOTES)):
        parts.append(pa.Table.from_pylist(some, schema=RECORD))
    return pa.concat_tables(parts)


def _number_of(cells: Cells, row: int) -> int:
    """Return a number that a row of a snapshot has however it is read: of its text, below zero."""
    digest = hashlib.blake2b(digest_size=8)
    for column in range(cells.column_count):
        text = cells.text(column, row)
        digest.update(b"-" if text is None else len(text).to_bytes(8, "big") + text)
    return -1 - (int.from_bytes(digest.digest(), "big") >> 1)


def _misfits(
    shape: Shape, cells: Cells, indices: Sequence[int], rows: Int32s, *, is_whole: bool = True
) -> dict[int, Misfit]:
    """Return which of some rows do not fit, each with the first of some fields that says so.

    Args:
        shape: The shape of the rows.
        cells: Where they are.
        indices: The fields.
        rows: The rows.
        is_whole: Whether all of a row counts: those as well for which an expression has no value.
    """
    found: dict[int, Misfit] = {}
    for index in indices:
        left = rows if not found else rows[~np.isin(rows, np.fromiter(found, np.int32, len(found)))]
        found |= dict(_refused(shape, cells, index, left))
    if is_whole and (failures := _failures(shape, cells)) is not None:
        failing = rows[failures.is_valid().to_numpy(zero_copy_only=False)[rows]]
        found = {row: _failed(shape, failures, row) for row in failing.tolist()} | found
    return found


def _failures(shape: Shape, cells: Cells) -> pa.Array | None:
    """Return why expressions have no values for rows (`kuvasz.modes.row_rules.FAILURE`); None: all have."""
    count = 0 if shape.transform is None else len(shape.transform.computed)
    return cells.computed[count] if len(cells.computed) > count else None


def _failed(shape: Shape, failures: pa.Array, row: int) -> Misfit:
    """Return why an expression has no value for a row."""
    assert shape.transform is not None
    why, transform = failures[row].as_py(), shape.transform
    if why["input"] >= 0:
        item = transform.inputs[why["input"]]
        shown = [index for index, binding in enumerate(shape.bindings) if binding.column == item.column]
        return Misfit(column=item.name, reason=why["reason"], index=shown[0] if shown else -1)
    number = why["expression"] - (transform.filter is not None)
    if number < 0:
        return Misfit(column="", reason="the filter fails for it")
    return Misfit(column=transform.computed[number].name, reason="its expression fails")


def _refused(shape: Shape, cells: Cells, index: int, rows: Int32s) -> Iterator[tuple[int, Misfit]]:
    """Yield the rows whose value one field refuses."""
    binding = shape.bindings[index]
    if binding.computed is not None:
        yield from _without_key(shape, cells, index, rows)
    if binding.column < 0:
        return

    def read(some: Int32s) -> None:
        try:
            shape.read(cells, index, some)
        except RefusedValue as refused:
            if not isinstance(refused.__cause__, ValueRefused):
                raise InternalError("a value was refused for no reason") from refused
            raise refused.__cause__ from None

    for refused in columns.refusals(read, rows):
        yield refused.row, Misfit(column=binding.name, reason=refused.reason, index=index)


def _without_key(shape: Shape, cells: Cells, index: int, rows: Int32s) -> Iterator[tuple[int, Misfit]]:
    """Yield the rows for which an expression gives no key."""
    binding = shape.bindings[index]
    assert binding.computed is not None
    if index in shape.key:
        failures = _failures(shape, cells)
        is_null = cells.computed[binding.computed].is_null().to_numpy(zero_copy_only=False)[rows]
        for row in rows[is_null].tolist():
            if failures is not None and failures[row].is_valid:
                yield row, _failed(shape, failures, row)
            else:
                yield row, Misfit(column=binding.name, reason="is NULL, and is part of the key", index=index)


def _note(shape: Shape, cells: Cells, row: int, misfit: Misfit, *, has_key_alone: bool = False) -> dict[str, object]:
    """Return what is written down of a row; of one that went the key may be all that was sent."""
    owner = None if cells.whose is None else shape.owners[int(cells.whose[row])]
    shown = {
        binding.name: _shown(shape, cells, index, row)
        for index, binding in enumerate(shape.bindings)
        if (index in shape.key or not (has_key_alone and shape.key))
        and (binding.computed is not None or (binding.column >= 0 and cells.length[binding.column, row] >= NULL))
    }
    key = {name: shown[name] for name in (shape.bindings[index].name for index in shape.key) if name in shown}
    return {
        "source": shape.source if owner is None else owner.source,
        "table_name": str(shape.table if owner is None else owner.table),
        "key": json.dumps(key, ensure_ascii=False) if key else None,
        "column_name": misfit.column or None,
        "reason": misfit.reason,
        "raw": None if misfit.index < 0 else _shown(shape, cells, misfit.index, row),
        "raw_row": json.dumps(shown, ensure_ascii=False),
    }


def _shown(shape: Shape, cells: Cells, index: int, row: int) -> str | None:
    """Return the text of a value as the lake may show it."""
    binding = shape.bindings[index]
    if binding.computed is not None:
        values = cells.computed[binding.computed]
        value = values[row].as_py() if row < len(values) else None
        text = None if value is None else str(value)
    else:
        raw = cells.text(binding.column, row)
        text = None if raw is None else raw[: 4 * _KEPT_CHARACTERS].decode(errors="backslashreplace")
    if text is None:
        return None
    if binding.mask is not None and not binding.is_veiled:
        if binding.mask == "redact":
            return REDACTED
        return pseudonym(text, key_of(binding.mask, shape.mask_secret))
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _KEPT_CHARACTERS else text[:_KEPT_CHARACTERS] + CUT


__all__ = [
    "COPIED",
    "CUT",
    "RECORD",
    "Misfit",
    "Sifted",
    "SiftedCopy",
    "origins",
    "orphaned",
    "sift",
    "sift_copied",
    "text_of",
]
