"""Rows that do not fit (`kuvasz.modes.rejects.RECORD`) on their way to where they are written down: bounded."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import pyarrow as pa

from kuvasz.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Of one part of a source's table: where most rows do not fit it is a mistake.
PART_BYTES = 64 << 20

#: That are written down at a time.
PORTION_BYTES = 16 << 20


class RefusedPart:
    """Rows that do not fit of one part of a source's table.

    Args:
        place: The source and its table.
        part: What it is a part of, for people.
    """

    def __init__(self, place: str, part: str) -> None:
        self._place = place
        self._part = part
        self._found: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table | None) -> None:
        """Add rows.

        Raises:
            DecodeError: It must be a mistake.
        """
        if rows is None or rows.num_rows == 0:
            return
        self._found.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > PART_BYTES:
            count = sum(some.num_rows for some in self._found)
            first = self._found[0].slice(0, 1).to_pylist()[0]["reason"]
            message = f"{self._place}: {count} rows and more of one part of its {self._part} do not fit"
            raise DecodeError(message, hint=f"the first: {first}; mend the table's map entry")

    def packed(self) -> bytes | None:
        """Return all of them, None if there are none."""
        return packed(pa.concat_tables(self._found)) if self._found else None


class RefusedRows:
    """Rows that do not fit of many parts: counted, and handed on some megabytes at a time.

    Args:
        keep: Writes rows down.
    """

    def __init__(self, keep: Callable[[pa.Table], None]) -> None:
        self._keep = keep
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self.rows: collections.Counter[str] = collections.Counter()  #: source -> how many

    def add(self, rows: pa.Table) -> None:
        """Add rows; those that are too many to wait are written down."""
        self.rows.update(by_source(rows))
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > PORTION_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write down what waits."""
        if self._waiting:
            self._keep(pa.concat_tables(self._waiting))
            self._waiting, self._bytes = [], 0


def portions(found: Iterable[bytes], count: collections.Counter[str]) -> Iterator[list[bytes]]:
    """Yield packed rows by what is written down at a time, and count them.

    Args:
        found: The rows.
        count: Source -> how many; added to.
    """
    some: list[bytes] = []
    size = 0
    for one in found:
        rows = unpacked(one)
        count.update(by_source(rows))
        some.append(one)
        size += rows.nbytes
        if size > PORTION_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def packed(rows: pa.Table) -> bytes:
    """Return rows as compressed Arrow IPC: a chunk of small ones would take many times what came of the source."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def unpacked(data: bytes) -> pa.Table:
    """Return rows that were packed."""
    return pa.ipc.open_stream(data).read_all()


def by_source(rejected: pa.Table) -> dict[str, int]:
    """Return how many rows of each source were left out."""
    return {one["values"]: one["counts"] for one in rejected.column("source").value_counts().to_pylist()}


__all__ = ["PART_BYTES", "PORTION_BYTES", "RefusedPart", "RefusedRows", "by_source", "packed", "portions", "unpacked"]
