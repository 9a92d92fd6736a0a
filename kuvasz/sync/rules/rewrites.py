"""What gave a table another file, as far as anybody can tell: a TRUNCATE of the stream, or what no stream has. Pure.

Nothing has to be explained of a table that a publication named all the time, since it cannot be made unlogged, nor of
one that has the TOAST table that it had: see `kuvasz.source.catalog.relation_files`.

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
    return KnownFile(file=now.file, horizon=now.horizon, toast=now.toast, named=now.named)


def was_always_logged(known: KnownFile, now: RelationFile) -> bool:
    """Whether it is sure, without a look at rows, that a table was not made unlogged since its known file."""
    is_named = not set(known.named).isdisjoint(now.named)
    return known.file == now.file or is_named or (known.toast != 0 and known.toast == now.toast)


def looked_at(before: KnownFile, now: RelationFile) -> KnownFile:
    """Return what is remembered of a table that was always logged; the same if that is nothing new."""
    if before.file != now.file:
        return known(now)
    return dataclasses.replace(before, toast=now.toast, named=now.named)


def truncated(known: KnownFile, xid: int) -> KnownFile:
    """Return a known file with a TRUNCATE that the stream brought; the same if that is nothing new, or no matter."""
    if xid in known.truncated or known.toast:
        return known
    return dataclasses.replace(known, truncated=(*known.truncated, xid)[-_MOST_TRUNCATES:])


def untold(known: KnownFile) -> KnownFile:
    """Return a known file without the TRUNCATEs of a past that is given up: their numbers are of others now."""
    return dataclasses.replace(known, truncated=())


def is_explained(spec: SourceTableSpec, known: KnownFile, now: RelationFile) -> bool:
    """Whether a transaction whose TRUNCATE the stream brought gave a table its file.

    Not if the TOAST table is another one. Within a savepoint a TRUNCATE has another number than its transaction in
    the stream. A target that can be compared is then compared without need; of one that cannot, any TRUNCATE since
    the last look counts.
    """
    if known.toast != 0 and known.toast != now.toast:
        return False
    if now.file_xid in known.truncated:
        return True
    return not spec.config.type.is_comparable and any(
        _is_from(known.horizon, xid) and _is_from(xid, now.file_xid) for xid in known.truncated
    )


def is_doubtful(spec: SourceTableSpec, now: RelationFile) -> bool:
    """Whether a transaction may have had a table unlogged and logged again behind its TRUNCATE.

    Not if its first command gave the table its file. A target that cannot be compared is spared the doubt.
    """
    return spec.config.type.is_comparable and now.command != 0


def _is_from(first: int, xid: int) -> bool:
    return (xid - first) % _ROUND < _HALF


__all__ = ["is_doubtful", "is_explained", "known", "looked_at", "truncated", "untold", "was_always_logged"]
