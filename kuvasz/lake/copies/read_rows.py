"""Small ranges are read, and written, by the thread that copies them.

A Spark job costs the driver more than twenty rows do, and tables of many sources that are written by one job wait for
the slowest of them: with a hundred sources a first start took 51 s where small ranges were gathered into shared jobs,
and takes 43 s so (in turn, all in one server on two cores; 76 s with fifty where each had a job of its own).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.ports import SMALL_COPY_BYTES, CopyTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.ports import CopyRequest

#: Of rows as text that are kept here: they are larger than they lie at the source, and tables grow.
_MOST_BYTES = 2 * SMALL_COPY_BYTES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadRows:
    """Rows that have been read: a `kuvasz.ports.CopyRequest` which asks nobody."""

    server: str
    data: bytearray = dataclasses.field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of text."""
        return len(self.data)

    def at_pace(self, rows_per_second: float) -> ReadRows:  # noqa: ARG002 (it is done)
        """See `kuvasz.ports.CopyRequest.at_pace`."""
        return self

    def hurried(self) -> ReadRows:
        """See `kuvasz.ports.CopyRequest.hurried`."""
        return self

    def bounded(self, most_bytes: int) -> ReadRows:  # noqa: ARG002 (they are there)
        """See `kuvasz.ports.CopyRequest.bounded`."""
        return self

    def read(self, chunk_bytes: int) -> Iterator[bytearray]:  # noqa: ARG002 (there is one piece)
        """See `kuvasz.ports.CopyRequest.read`."""
        if self.data:
            yield self.data


def read_small(request: CopyRequest, chunk_bytes: int) -> ReadRows | None:
    """Read a small range here and now; None if it is not small, or has become larger.

    Args:
        request: The range.
        chunk_bytes: As `kuvasz.ports.CopyRequest.read`.

    Raises:
        SourceError: See `kuvasz.source.snapshot.CopyRange.read`.
    """
    if request.size > SMALL_COPY_BYTES:
        return None
    data = bytearray()
    try:
        # A megabyte at the source may be one row of a hundred, and many are read here at a time.
        for piece in request.bounded(_MOST_BYTES).read(min(chunk_bytes, SMALL_COPY_BYTES)):
            data += piece
            if len(data) > _MOST_BYTES:
                return None
    except CopyTooLarge:
        return None
    return ReadRows(server=request.server, data=data)


__all__ = ["ReadRows", "read_small"]
