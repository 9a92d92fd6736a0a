"""What the lake is not to show is taken out of row messages before they are kept for long. Pure.

A masked value is put in its mask's place, one that the map leaves out becomes NULL, and the relation of the messages
says of each such column what was done (`kuvasz.model.Column.veil`). That cannot be undone, so who reads the messages
later either wants the same of the column, or is refused.

What is left as it was sent: columns that an expression may look at, those of messages that cannot be taken apart, and
those that the map knows by another name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.decode import columns
from kuvasz.decode.tuples import VALUE_FRAME, split_changes
from kuvasz.errors import DecodeError, OtherRule, place_of, resync_of
from kuvasz.model import LakeType, ReplicaIdentity, Segment, ValueType
from kuvasz.modes.row_rules import mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.decode.cells import Cells
    from kuvasz.model import Column, Int64s, Relation, UInt32s
    from kuvasz.modes.shape import Binding, Shape
    from kuvasz.ports import Target
    from kuvasz.route.parts import Change

#: `Column.veil` of one whose values were left out.
LEFT_OUT = "left out"

_TEXT = ValueType(kind=LakeType.STRING)

_NULL = b"n"

#: Of a secret's fingerprint: 28 bits tell another one, and say little of it.
_DIGITS = 7

#: Makes a guess at the secret as dear as this many guesses by a masked value.
_ROUNDS = 100_000

_SALT = b"kuvasz.rule."


@functools.lru_cache(maxsize=64)
def fingerprint(secret: bytes) -> str:
    """Return what tells a secret from others: PBKDF2 (RFC 8018) of HMAC-SHA-256, and little of that."""
    return hashlib.pbkdf2_hmac("sha256", secret, _SALT, _ROUNDS).hex()[:_DIGITS]


def of(method: str | None, secret: bytes) -> str:
    """Return what `Column.veil` says of a column that is masked so; empty if it is not masked."""
    return method or "" if method in {None, "redact"} else f"{method}:{fingerprint(secret)}"


def unveil(shape: Shape, relation: Relation, target: str) -> Shape:
    """Return a shape that leaves values as they are which are masked already.

    Args:
        shape: How the columns of the relation meet the fields of the table.
        relation: A message's.
        target: The name of the target, for messages.

    Raises:
        OtherRule: They were masked, or left out, where the map wants something else by now.
    """
    if not any(column.veil for column in relation.columns):
        return shape
    for item in () if shape.transform is None else shape.transform.inputs:
        _check(shape, relation.columns[item.column], "", target)
    return dataclasses.replace(
        shape,
        bindings=tuple(
            dataclasses.replace(one, is_veiled=_is_veiled(shape, relation, one, target)) for one in shape.bindings
        ),
    )


def _is_veiled(shape: Shape, relation: Relation, binding: Binding, target: str) -> bool:
    if binding.column < 0:
        return False
    column = relation.columns[binding.column]
    _check(shape, column, of(binding.mask, shape.mask_secret), target)
    return bool(column.veil)


def _check(shape: Shape, column: Column, wanted: str, target: str) -> None:
    if column.veil in {"", wanted}:
        return
    done = "left out" if column.veil == LEFT_OUT else "masked by another rule"
    message = (
        f"{place_of(shape.source, shape.table, column.name)}: its parked values were {done}, as the map said then"
    )
    options = "`mask`, `exclude`, `columns` and `pipeline.mask_secret`"
    hint = f"change {options} back; or copy the table again: {resync_of(target)}"
    raise OtherRule(message, hint=hint)


class Veil:
    """The veil of one table's changes of one source. One thread uses it at a time.

    Args:
        target: What the map says of the table.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._last: tuple[Relation, Relation] | None = None  # to hash a relation takes longer than all else

    def over(self, change: Change) -> Change:
        """Return a change without what the lake is not to show; one that cannot be taken apart as it is."""
        if not isinstance(change, Segment):
            return change
        relation = self._veiled(change.relation)
        if relation is change.relation:
            return change
        try:
            data, lengths = _veiled(change, relation, self._target)
        except DecodeError:  # it is told when the rows are applied, in the words that are used then
            return change
        return dataclasses.replace(change, relation=relation, data=data, lengths=lengths)

    def _veiled(self, relation: Relation) -> Relation:
        if self._last is None or self._last[0] is not relation:
            veils = _veils(self._target, relation)
            found = relation
            if any(veils.values()):
                found = dataclasses.replace(
                    relation,
                    columns=tuple(dataclasses.replace(one, veil=veils[one.name]) for one in relation.columns),
                )
            self._last = relation, found
        return self._last[1]


def _veils(target: Target, relation: Relation) -> Mapping[str, str]:
    """Return what is to be done with each column of a message: name -> `Column.veil`."""
    names = {column.name for column in relation.columns}
    # The names of a message may be of another time than the map. One that is missing may be any other's by now.
    knows_left = target.exclude <= names if target.columns is None else target.columns <= names
    found = dict.fromkeys(names, "")
    if target.set is not None:  # its expressions look at columns, and `mask` names what they give
        return found
    for column in relation.columns:
        if target.may_read(column.name):
            continue
        if not target.takes(column.name):
            found[column.name] = LEFT_OUT if knows_left and not _identifies(relation, column) else ""
        elif target.mask.get(column.name) not in {None, "redact"} or not _identifies(relation, column):
            found[column.name] = of(target.mask.get(column.name), target.mask_secret)
    return found


def _identifies(relation: Relation, column: Column) -> bool:
    """Whether rows are told apart by a column; with REPLICA IDENTITY FULL the stream says so of every one."""
    return column.is_key and relation.identity is not ReplicaIdentity.FULL


def _veiled(segment: Segment, relation: Relation, target: Target) -> tuple[bytes, UInt32s]:
    """Return the messages of a segment, and their lengths, with what a relation's veils put in place of values.

    Raises:
        DecodeError: They are none, or a value that is to be masked is no text.
    """
    changes = split_changes(segment.data, segment.lengths, len(relation.columns))
    edits = [
        edit
        for number, column in enumerate(relation.columns)
        if column.veil
        for cells in (changes.new, changes.old)
        for edit in _edits(cells, number, column, target)
    ]
    edits.sort(key=lambda edit: edit[0])
    view, at = memoryview(segment.data), 0
    pieces: list[bytes | memoryview] = []
    for begin, end, text in edits:
        pieces += (view[at:begin], text)
        at = end
    pieces.append(view[at:])
    grown = np.array([len(text) - (end - begin) for begin, end, text in edits], np.int64)
    begins = np.array([begin for begin, _, _ in edits], np.int64)
    return b"".join(pieces), _lengths(segment.lengths, begins, grown)


def _edits(cells: Cells, number: int, column: Column, target: Target) -> list[tuple[int, int, bytes]]:
    """Return what is put in place of a column's values: begin and end in the messages, and the bytes."""
    rows = np.flatnonzero(cells.length[number] >= 0).astype(np.int32)
    starts = cells.start[number, rows]
    begins, ends = starts - VALUE_FRAME, starts + cells.length[number, rows]
    if column.veil == LEFT_OUT:
        texts = [_NULL] * len(rows)
    else:
        masked = mask(columns.column(cells, number, _TEXT, rows), target.mask[column.name], target.mask_secret)
        texts = [_framed(text) for text in masked.to_pylist()]
    return list(zip(begins.tolist(), ends.tolist(), texts, strict=True))


def _framed(text: str) -> bytes:
    data = text.encode()
    return b"t" + len(data).to_bytes(4, "big") + data


def _lengths(lengths: UInt32s, begins: Int64s, grown: Int64s) -> UInt32s:
    ends = np.cumsum(lengths, dtype=np.int64)
    found = lengths.astype(np.int64)
    np.add.at(found, np.searchsorted(ends, begins, side="right"), grown)
    return found.astype(np.uint32)


__all__ = ["LEFT_OUT", "Veil", "fingerprint", "of", "unveil"]
