"""What gave a table another file, as far as anybody can tell: a TRUNCATE of the stream, or what no stream has. Pure.

Transactions are numbered by 32 bits and come round; those compared here are no further apart than half of that.
"""

from __future__ import annotations

import dataclasses

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog.relation_files import RelationFile
from kuvasz.state.ports import KnownFile

#: TRUNCATEs of a table that are remembered: the looks that show their files come soon.
_MOST_TRUNCATES = 8

_ROUND, _HALF = 1 << 32, 1 << 31


def known(now: RelationFile) -> KnownFile:
    """Return what is remembered once all rows of a file are known."""
    return KnownFile(file=now.file, horizon=now.horizon)


def truncated(known: KnownFile, xid: int) -> KnownFile:
    """Return a known file with a TRUNCATE that the stream brought; the same if that is nothing new."""
    if xid in known.truncated:
        return known
    return dataclasses.replace(known, truncated=(*known.truncated, xid)[-_MOST_TRUNCATES:])


def is_explained(spec: SourceTableSpec, known: KnownFile, now: RelationFile) -> bool:
    """Whether a TRUNCATE of the stream gave a table its file.

    Within a savepoint it has another number than its transaction in the stream. A target that can be compared is then
    compared without need; of one that cannot, any TRUNCATE since the last look counts.
    """
    if now.file_xid in known.truncated:
        return True
    return not spec.config.type.is_comparable and any(
        _is_from(known.horizon, xid) and _is_from(xid, now.file_xid) for xid in known.truncated
    )


def _is_from(first: int, xid: int) -> bool:
    return (xid - first) % _ROUND < _HALF


__all__ = ["is_explained", "known", "truncated"]
