"""Segments and truncations as records of a parking log. Pure, but for the secrets that seal.

Row messages of a segment are sealed, if the map has a secret for it; the rest says what a log has, and no value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kuvasz.model import Segment, Transactions, Truncation
from kuvasz.seal.sealing_secrets import SealingSecrets

if TYPE_CHECKING:
    from kuvasz.parking.relation_numbers import RelationNumbers
    from kuvasz.seal.sealing_key import Buffer

_SEGMENT: Final = struct.Struct("<IIIQ")  #: number of its relation, rows, transactions, bytes of data
_TRUNCATION: Final = struct.Struct("<IQQqI")

#: Added to the number of a segment's relation: its messages are sealed. Who knows of no seal finds no such relation.
_IS_SEALED: Final = 1 << 31


class ChangeRecords:
    """The records of one log.

    Args:
        source: The source's name, for what is read.
        secrets: What row messages are sealed with, and opened.
    """

    def __init__(self, source: str, secrets: SealingSecrets) -> None:
        self._source = source
        self._secrets = secrets

    def segment(self, number: int, segment: Segment, log_id: str) -> Sequence[Buffer]:
        """Return a segment as the parts of a record.

        Args:
            number: Its relation's.
            segment: The segment.
            log_id: The id of the log, to which what is sealed is bound.
        """
        data: Buffer = segment.data
        if self._secrets.is_sealing:
            number, data = number | _IS_SEALED, self._secrets.sealed(data, log_id.encode())
        runs = segment.transactions
        facts = number, len(segment.lengths), len(runs.xid), len(data)
        arrays = segment.lengths, runs.commit_lsn, runs.end_lsn, runs.commit_us, runs.xid, runs.row_end
        return (_SEGMENT.pack(*facts), *(array.tobytes() for array in arrays), data)

    @staticmethod
    def truncation(number: int, change: Truncation) -> bytes:
        """Return a truncation as a record; `number` is its relation's."""
        return _TRUNCATION.pack(number, change.commit_lsn, change.end_lsn, change.commit_us, change.xid)

    def read_truncation(self, payload: bytes, relations: RelationNumbers) -> Truncation:
        """Return the truncation of a record."""
        number, commit_lsn, end_lsn, commit_us, xid = _TRUNCATION.unpack(payload)
        return Truncation(
            source=self._source, relation=relations[number], commit_lsn=commit_lsn, end_lsn=end_lsn,
            commit_us=commit_us, xid=xid,
        )  # fmt: skip

    def read_segment(self, payload: bytes, relations: RelationNumbers, log_id: str, *, with_rows: bool) -> Segment:
        """Return the segment of a record.

        Args:
            payload: The record's bytes.
            relations: The relations of the log.
            log_id: The id of the log.
            with_rows: Whether row messages are wanted that are sealed.

        Raises:
            SealDamaged: The row messages are not what was sealed.
            SealUnknown: They were sealed with a secret that is not there.
        """
        number, rows, count, size = _SEGMENT.unpack_from(payload)
        offset = _SEGMENT.size
        arrays = []
        for kind, length in (("u4", rows), ("u8", count), ("u8", count), ("i8", count), ("u4", count), ("u4", count)):
            arrays.append(np.frombuffer(payload, f"<{kind}", length, offset))
            offset += arrays[-1].nbytes
        lengths, commit_lsn, end_lsn, commit_us, xid, row_end = arrays
        data = payload[offset : offset + size]
        if number & _IS_SEALED:
            data = bytes(self._secrets.opened(data, log_id.encode())) if with_rows else b""
        return Segment(
            source=self._source,
            relation=relations[number & ~_IS_SEALED],
            data=data,
            lengths=lengths,
            transactions=Transactions(
                commit_lsn=commit_lsn, end_lsn=end_lsn, commit_us=commit_us, xid=xid, row_end=row_end
            ),
        )


__all__ = ["ChangeRecords"]
