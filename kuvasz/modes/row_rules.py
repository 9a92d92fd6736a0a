"""What the map does to rows on their way: filter, computed columns, masks. Pure; the expressions are Spark's.

Spark SQL evaluates expressions in its JVM, so a chunk is decoded twice: first only the columns that expressions look
at (`inputs`), then, with Spark's answers at hand (`Evaluated`), the rows themselves. `attach` joins the two: the
cells carry the computed values from then on, and rows outside the filter have become deletions. Every table type then
works on them as on any other rows.

Where rows that do not fit are rejected, Spark's answers say of each row whether an expression failed for it
(`judged`), and the cells carry that behind the computed values, for `kuvasz.modes.rejects`. Of a row for which the
filter fails nobody knows whether it is in, so it goes on as if it were, to be taken out there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.decode import columns
from kuvasz.decode.cells import NULL, UNCHANGED, Cells
from kuvasz.decode.refusals import CUT_AWAY, way_out
from kuvasz.decode.tuples import DELETE, INSERT, KEY, UPDATE, RowChanges, fill_unchanged, take_from_old
from kuvasz.errors import DecodeError
from kuvasz.fold import fold
from kuvasz.fold.keys import Keys, hash_keys
from kuvasz.model import Int32s, LakeType, ValueType, Wire

#: What `redact` leaves of a value.
REDACTED = "***"

_SALT = b"kuvasz.mask"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A source column that expressions look at."""

    name: str
    column: int  #: index into the relation's columns
    type: ValueType


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A lake column that an expression gives."""

    name: str
    text: str  #: Spark SQL
    inputs: tuple[int, ...]  #: indices into `Transform.inputs`
    type: ValueType  #: of the result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Everything that happens to a relation's rows before they are folded."""

    place: str  #: source and table, for messages
    inputs: tuple[Input, ...] = ()
    filter: str | None = None
    filter_inputs: tuple[int, ...] = ()
    computed: tuple[Computed, ...] = ()
    identity: tuple[int, ...] = ()  #: columns of the relation that identify a row at the source
    is_hidden: bool = False  #: the lake is not to show what its inputs hold, and so nor are errors

    @property
    def expressions(self) -> tuple[tuple[int, ...], ...]:
        """What the filter, if there is one, and then each computed column looks at, as indices into `inputs`."""
        computed = tuple(item.inputs for item in self.computed)
        return computed if self.filter is None else (self.filter_inputs, *computed)

    @property
    def filters_by_key(self) -> bool:
        """Whether the filter looks at nothing but what identifies a row, so that a row is in or out for good."""
        return all(self.inputs[index].column in self.identity for index in self.filter_inputs)

    @property
    def needs_spark(self) -> bool:
        """Whether there is anything that only Spark can evaluate."""
        return self.filter is not None or bool(self.computed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Spark's answers for the rows that `inputs_of` gave it, in the same order."""

    keep: np.ndarray  #: booleans: the row passes the filter
    computed: tuple[pa.Array, ...]
    undecided: np.ndarray | None = None  #: booleans: whether it passes is not known; None: of all it is
    failures: pa.Array | None = None  #: per row as `FAILURE` says, NULL where it has its values; None: all have them

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """What cells carry: the computed columns, and why rows lack values if some do."""
        return self.computed if self.failures is None else (*self.computed, self.failures)

    @property
    def passing(self) -> np.ndarray:
        """The rows that pass the filter, or of which nobody knows."""
        return self.keep if self.undecided is None else self.keep | self.undecided


#: Why a row has no values: the number of the first expression that has none, the input that does not fit its type, or
#: -1 where the expression itself fails, and what is wrong with the input.
FAILURE: Final = pa.struct([("expression", pa.int32()), ("input", pa.int32()), ("reason", pa.string())])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RefusedInput:
    """A value that expressions look at, and that does not fit its type."""

    row: int
    input: int  #: index into `Transform.inputs`
    reason: str


def judged(transform: Transform, answers: Sequence[pa.Array], unreadable: Sequence[RefusedInput]) -> Evaluated:
    """Return what Spark's answers come to where an expression may fail for some rows.

    Args:
        transform: The transform of the relation.
        answers: Whether rows pass the filter, and the computed columns, each within a struct that is NULL where its
            expression failed.
        unreadable: What these rows have of inputs that do not fit.
    """
    fails = [answer.is_null().to_numpy(zero_copy_only=False) for answer in answers]
    passes, *computed = [pc.struct_field(answer, [0]) for answer in answers]
    keep = pc.fill_null(passes, fill_value=False).to_numpy(zero_copy_only=False)
    if not unreadable and not any(some.any() for some in fails):
        return Evaluated(keep=keep, computed=tuple(computed))
    fails = fails if transform.filter is not None else fails[1:]
    why, which = np.full(len(keep), -1, np.int32), np.full(len(keep), -1, np.int32)
    for number in reversed(range(len(fails))):
        why[fails[number]] = number
    undecided = fails[0].copy() if transform.filter is not None else np.zeros(len(keep), np.bool_)
    reasons: dict[int, str] = {}
    for one in unreadable:
        users = [number for number, inputs in enumerate(transform.expressions) if one.input in inputs]
        undecided[one.row] |= transform.filter is not None and users[0] == 0
        if why[one.row] < 0 or users[0] < why[one.row]:
            why[one.row], which[one.row], reasons[one.row] = users[0], one.input, one.reason
    why[~keep & ~undecided] = -1  # it is no row of the lake, whatever else is wrong with it
    texts = pa.array([reasons.get(row) if which[row] >= 0 else None for row in range(len(keep))], pa.string())
    arrays = [pa.array(why), pa.array(which), texts]
    failures = pa.StructArray.from_arrays(arrays, fields=list(FAILURE), mask=pa.array(why < 0))
    return Evaluated(keep=keep, computed=tuple(computed), undecided=undecided, failures=failures)


def readable(value_type: ValueType) -> ValueType:
    """Return how expressions see a column: Spark has no UUIDs, it reads them from Iceberg as text, and so here."""
    return ValueType(kind=LakeType.STRING, wire=Wire.TEXT) if value_type.kind is LakeType.UUID else value_type


def resolve(transform: Transform, changes: RowChanges) -> None:
    """Give unchanged cells, in place, the text that the chunk itself has of them."""
    if not (changes.new.length == UNCHANGED).any():
        return
    if not transform.identity:
        fill_unchanged(changes, np.full(changes.new.row_count, -1, np.int32))
        return
    for column in transform.identity:
        take_from_old(
            changes, column
        )  # a key that is stored out of line is not sent again: its row has it as old key
    # The text as it came, not the value: it is the same text as long as the row is the same.
    new, old = (_identities(transform, cells) for cells in (changes.new, changes.old))
    folded = fold.fold(changes.tag, new, old, changes.old_row)
    fill_unchanged(changes, folded.previous)


def _identities(transform: Transform, cells: Cells) -> Keys:
    text = ValueType(kind=LakeType.STRING, wire=Wire.TEXT)
    if cells.row_count == 0:
        return Keys.empty()
    parts = [columns.column(_present(cells), column, text) for column in transform.identity]
    return hash_keys(parts, sid=None, seed=bytes(16))


def _present(cells: Cells) -> Cells:
    return dataclasses.replace(cells, length=np.where(cells.length == UNCHANGED, np.int32(NULL), cells.length))


def inputs_of(
    transform: Transform,
    cells: Cells,
    rows: Int32s | None = None,
    *,
    is_key_only: np.ndarray | None = None,
    out_of_range: str = "error",
) -> pa.Table:
    """Decode the columns that expressions look at, and say for each expression which rows carry all of them.

    Args:
        transform: The transform of the relation.
        cells: Tuples.
        rows: The tuples that are looked at; None for all.
        is_key_only: Whether each tuple has nothing but what identifies a row.
        out_of_range: The policy of the table. Columns that identify a row keep their values or are refused.

    Returns:
        Columns ``i0`` … with NULL for what is not at hand, and then ``w0`` … for `Transform.expressions`: an
        expression that met such a NULL could fail on a value that is not in the row.

    Raises:
        DecodeError: A value does not fit.
    """
    present = _present(cells)
    count = cells.row_count if rows is None else len(rows)
    arrays = []
    for item in transform.inputs:
        policy = "error" if item.column in transform.identity else out_of_range
        try:
            arrays.append(columns.column(present, item.column, item.type, rows, out_of_range=policy))
        except columns.ValueRefused as refused:
            raise _refusal(transform, item, refused) from refused
    absent = [_is_absent(transform, item, cells, is_key_only) for item in transform.inputs]
    whole = [~_any(absent, inputs, cells.row_count) for inputs in transform.expressions]
    arrays += [pa.array(mask if rows is None else mask[rows]) for mask in whole]
    names = [f"i{number}" for number in range(len(transform.inputs))]
    names += [f"w{number}" for number in range(len(whole))]
    return pa.table(arrays, names=names) if arrays else pa.table({"none": pa.nulls(count, pa.bool_())})


def _refusal(transform: Transform, item: Input, refused: columns.ValueRefused) -> DecodeError:
    value = REDACTED if transform.is_hidden else repr(refused.text[:120])
    message = f"{transform.place}, column {item.name}: value {value} {refused.reason}"
    way = way_out(refused.number, item.name, has_policy=item.column not in transform.identity)
    return DecodeError(message, hint=f"the column is used in an expression: {way}")


def without_unreadable(
    transform: Transform, cells: Cells, rows: Int32s | None = None, *, out_of_range: str = "error"
) -> tuple[Cells, list[RefusedInput]]:
    """Return tuples without the values that expressions look at and that do not fit, and what these are.

    Args:
        transform: The transform of the relation.
        cells: Tuples.
        rows: As for `inputs_of`; what is said counts rows among them.
        out_of_range: As for `inputs_of`.

    Raises:
        DecodeError: A value was cut away.
    """
    looked_at = np.arange(cells.row_count, dtype=np.int32) if rows is None else rows
    place = np.zeros(cells.row_count, np.int64)
    place[looked_at] = np.arange(len(looked_at))
    present, length = _present(cells), cells.length.copy()
    found = []
    for number, item in enumerate(transform.inputs):
        policy = "error" if item.column in transform.identity else out_of_range

        def read(some: Int32s, item: Input = item, policy: str = policy) -> object:
            return columns.column(present, item.column, item.type, some, out_of_range=policy)

        for refused in columns.refusals(read, looked_at):
            if refused.number == CUT_AWAY:  # of the earlier row nobody knows then whether it passed the filter
                raise _refusal(transform, item, refused)
            length[item.column, refused.row] = UNCHANGED  # as what is not at hand, no expression meets it
            found.append(RefusedInput(row=int(place[refused.row]), input=number, reason=refused.reason))
    return dataclasses.replace(cells, length=length), found


def _is_absent(transform: Transform, item: Input, cells: Cells, is_key_only: np.ndarray | None) -> np.ndarray:
    absent = cells.length[item.column] == UNCHANGED
    if is_key_only is None or item.column in transform.identity:
        return np.asarray(absent)
    return np.asarray(absent | is_key_only)


def valid_rows(changes: RowChanges) -> Int32s:
    """Return the rows with a new tuple: those that are evaluated, before all old ones."""
    return np.flatnonzero(changes.tag != DELETE).astype(np.int32)


def key_only(changes: RowChanges) -> np.ndarray:
    """Say of each old tuple whether it has nothing but what identifies a row."""
    is_key = np.zeros(changes.old.row_count, np.bool_)
    has_old = changes.old_row >= 0
    is_key[changes.old_row[has_old]] = changes.old_tag[has_old] == KEY
    return is_key


def attach(transform: Transform, changes: RowChanges, evaluated: Evaluated) -> RowChanges:
    """Return changes whose cells carry the computed values; rows outside the filter are deletions.

    Args:
        transform: The transform of the relation.
        changes: After `resolve`.
        evaluated: For the `valid_rows` of the new tuples and then for all old tuples.

    Raises:
        DecodeError: An expression needs a large value that the update does not carry.
    """
    rows = valid_rows(changes)
    count = changes.new.row_count
    place = np.full(count, -1, np.int64)
    place[rows] = np.arange(len(rows))
    take_new = pa.array(np.maximum(place, 0), mask=place < 0)
    take_old = pa.array(np.arange(len(rows), len(rows) + changes.old.row_count))
    missing = _missing(transform, changes.new)
    columns_of = evaluated.columns
    new = dataclasses.replace(
        changes.new,
        computed=tuple(column.take(take_new) for column in columns_of),
        unknown=tuple(_unknown(transform, item, missing, count) for item in transform.computed),
    )
    old = dataclasses.replace(
        changes.old,
        computed=tuple(column.take(take_old) for column in columns_of),
        unknown=tuple(np.zeros(changes.old.row_count, np.bool_) for _ in transform.computed),
    )
    changes = dataclasses.replace(changes, new=new, old=old)
    if transform.filter is None:
        return changes
    _refuse(transform, "the filter", _any(missing, transform.filter_inputs, count))
    keep = np.ones(count, np.bool_)
    keep[rows] = evaluated.passing[: len(rows)]
    keep_old = evaluated.keep[len(rows) :]
    return _filtered(transform, changes, keep, keep_old)


def _missing(transform: Transform, cells: Cells) -> list[np.ndarray]:
    return [cells.length[item.column] == UNCHANGED for item in transform.inputs]


def _any(missing: Sequence[np.ndarray], inputs: Sequence[int], count: int) -> np.ndarray:
    return np.asarray(np.logical_or.reduce([missing[index] for index in inputs] or [np.zeros(count, np.bool_)]))


def _unknown(transform: Transform, item: Computed, missing: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Say of which rows a column is what it was before: nothing that it is computed from has changed."""
    some = _any(missing, item.inputs, count)
    if not some.any():
        return np.zeros(count, np.bool_)
    every = np.asarray(np.logical_and.reduce([missing[index] for index in item.inputs]))
    _refuse(transform, f"column {item.name}", some & ~every)
    return every


def _refuse(transform: Transform, what: str, rows: np.ndarray) -> None:
    if rows.any():
        count = int(np.count_nonzero(rows))
        message = (
            f"{transform.place}: {what} is computed from a large value that {count} updates leave out,"
            " because it did not change"
        )
        raise DecodeError(message, hint="ALTER TABLE … REPLICA IDENTITY FULL makes updates carry it; then retry")


def _filtered(transform: Transform, changes: RowChanges, keep: np.ndarray, keep_old: np.ndarray) -> RowChanges:
    """Turn rows that do not pass into deletions of what there was before them."""
    gone = np.flatnonzero(~keep & (changes.tag != DELETE))
    outside = _outside(transform, changes, keep, keep_old)
    if len(gone) == 0:
        return dataclasses.replace(changes, outside=outside, old_outside=~keep_old)
    tag = changes.tag.copy()
    tag[gone] = DELETE
    lone = gone[changes.old_row[gone] < 0]  # their own key stands for the old one
    old_row = changes.old_row.copy()
    old_row[lone] = np.arange(changes.old.row_count, changes.old.row_count + len(lone), dtype=np.int32)
    old_tag = changes.old_tag.copy()
    old_tag[lone] = KEY
    new, old = changes.new, changes.old
    return dataclasses.replace(
        changes,
        tag=tag,
        old=Cells(
            data=old.data,
            start=np.concatenate([old.start, new.start[:, lone]], axis=1),
            length=np.concatenate([old.length, np.maximum(new.length[:, lone], NULL)], axis=1),
            computed=tuple(
                pa.concat_arrays([before, after.take(pa.array(lone))])
                for before, after in zip(old.computed, new.computed, strict=True)
            ),
            unknown=tuple(np.zeros(old.row_count + len(lone), np.bool_) for _ in old.unknown),
        ),
        old_row=old_row,
        old_tag=old_tag,
        outside=outside,
        old_outside=np.concatenate((~keep_old, np.ones(len(lone), np.bool_))),
    )


def _outside(transform: Transform, changes: RowChanges, keep: np.ndarray, keep_old: np.ndarray) -> np.ndarray:
    """Say which rows never were inside the filter, as far as the change itself tells."""
    inserted = (changes.tag == INSERT) & ~keep
    has_old = changes.old_row >= 0
    was_in = np.ones(len(keep), np.bool_)
    if transform.filters_by_key:
        was_in = keep.copy()  # without an old key it is the same one
    else:
        has_old &= changes.old_tag != KEY
    was_in[has_old] = keep_old[changes.old_row[has_old]]
    left = ((changes.tag == UPDATE) & ~keep & ~was_in) | ((changes.tag == DELETE) & ~was_in)
    return np.asarray(inserted | left)


def attach_copied(transform: Transform, cells: Cells, evaluated: Evaluated) -> tuple[Cells, Int32s | None]:
    """Return copied rows with their computed values, and which of them pass the filter; None: all."""
    cells = dataclasses.replace(
        cells,
        computed=evaluated.columns,
        unknown=tuple(np.zeros(cells.row_count, np.bool_) for _ in transform.computed),
    )
    return cells, None if transform.filter is None else np.flatnonzero(evaluated.passing).astype(np.int32)


def mask(array: pa.Array, method: str, secret: bytes) -> pa.Array:
    """Hide values: ``hmac`` gives equal pseudonyms to equal values, ``redact`` the same text to all; NULL stays.

    Args:
        array: Texts.
        method: ``hmac`` (HMAC-SHA-256, RFC 2104, in lower-case hex), ``hmac:name`` (with a key for that name) or
            ``redact``.
        secret: The key of the pseudonyms.
    """
    if method == "redact":
        return pc.if_else(pc.is_valid(array), pa.scalar(REDACTED), pa.scalar(None, pa.string()))
    codes, key = array.dictionary_encode(), key_of(method, secret)
    names = [None if text is None else pseudonym(text, key) for text in codes.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(codes.indices)


def key_of(method: str, secret: bytes) -> bytes:
    """Return the key by which a method gives pseudonyms.

    That for a name is HKDF's (RFC 5869, SHA-256). An HMAC of the name with the secret itself would be what ``hmac``
    makes of the name as a value, which whoever writes to a source can see.
    """
    _, _, name = method.partition(":")
    if not name:
        return secret
    extracted = hmac.new(_SALT, secret, hashlib.sha256).digest()
    return hmac.new(extracted, name.encode() + b"\x01", hashlib.sha256).digest()


def pseudonym(text: str, key: bytes) -> str:
    """Return the pseudonym of one text."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


__all__ = [
    "FAILURE",
    "Computed",
    "Evaluated",
    "Input",
    "RefusedInput",
    "Transform",
    "attach",
    "attach_copied",
    "inputs_of",
    "judged",
    "key_of",
    "key_only",
    "mask",
    "pseudonym",
    "readable",
    "resolve",
    "valid_rows",
    "without_unreadable",
]  # fmt: skip
