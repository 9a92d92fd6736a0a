"""A small table in the shape of each type, and what a type makes of messages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from kuvasz.fold.keys import Keys
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import Relation, ReplicaIdentity, TableType
from kuvasz.modes import dispatch
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts
from tests.support.changes import feed, relation, target
from tests.support.wires import joined

#: The table without a key.
KEYLESS = dataclasses.replace(
    relation(), identity=ReplicaIdentity.FULL,
    columns=tuple(dataclasses.replace(column, is_key=False) for column in relation().columns),
)  # fmt: skip


def shape(found: Relation | None = None, table_type: TableType = TableType.APPEND) -> Shape:
    """Return the shape of a table, the small one with the key id if no other is named."""
    made = found or relation()
    wants = target(table_type=table_type)
    schema = LakeSchema(schema_id=0, fields=wanted(wants, made))
    return bind(wants, schema, made.key, bytes(range(16)), feed("eu"), made)


CLONE = shape(table_type=TableType.CLONE)
APPEND = shape(table_type=TableType.APPEND)
CHANGELOG = shape(table_type=TableType.CHANGELOG)
HISTORY = shape(table_type=TableType.HISTORY)


def apply(*messages: bytes, to: Shape = APPEND) -> ChunkOutcome:
    """Apply messages to a type that needs no facts of their transactions."""
    data, lengths = joined(list(messages))
    return dispatch.apply_changes(to, np.frombuffer(data, np.uint8), lengths)


def apply_transaction(*messages: bytes, to: Shape = CHANGELOG, ordinal: int = 0) -> ChunkOutcome:
    """Apply messages of one transaction, one second after PostgreSQL's epoch."""
    data, lengths = joined(list(messages))
    facts = Facts.of(np.array([[100, 1_000_000, 7, len(messages), ordinal]], np.int64))
    return dispatch.apply_changes(to, np.frombuffer(data, np.uint8), lengths, facts)


def keys(*ids: int) -> list[tuple[int, int]]:
    """Return the hashed keys of ids."""
    return pairs(CLONE.hash([pa.array(ids, pa.int64())], len(ids)))


def pairs(found: Keys) -> list[tuple[int, int]]:
    """Return keys as values that can be compared and put into sets."""
    return list(zip(found.hi.tolist(), found.lo.tolist(), strict=True))


def rows(table: pa.Table) -> list[tuple]:
    """Return the rows without names."""
    return [tuple(row.values()) for row in table.to_pylist()]
