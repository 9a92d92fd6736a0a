"""The messages of a piece of a source's stream, looked at all together: where transactions end, and of what rows are.

In: CopyData payloads one after another (`kuvasz.route.scan` calls them a gulp). What is wrong with them is told by
whoever routes them; here only what would be read beyond an end is refused.
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias

import numpy as np

from kuvasz.decode.messages import (
    BEGIN,
    COMMIT,
    DELETE,
    FIRST_COMMIT_US,
    INSERT,
    KEEPALIVE,
    KEEPALIVE_BYTES,
    KEEPALIVE_LSN,
    KEEPALIVE_REPLY,
    LAST_COMMIT_US,
    RELATION,
    TRUNCATE,
    TYPE,
    UPDATE,
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
)
from kuvasz.errors import DecodeError
from kuvasz.model import Int64s, UInt8s, UInt32s, UInt64s

#: The messages that describe a relation, as they were sent: of its types, and its own.
Description: TypeAlias = tuple[bytes, ...]

_HEAD: Final = XLOGDATA_HEADER_BYTES

#: From the tag on: where fields lie, and the bytes up to their ends.
_OID_AT: Final = 1
_COMMIT_END_AT: Final = 10
_BEGIN_FIELDS: Final = 21
_TRUNCATED_AT: Final = 6

#: Of a keepalive: bytes up to the end of its LSN.
_KEEPALIVE_HEAD: Final = 9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A Relation message."""

    message: int  #: its number
    oid: int
    description: Description


class StreamMessages:
    """The messages.

    Args:
        data: The payloads.
        lengths: Bytes of each.

    Raises:
        DecodeError: The lengths are not those of the payloads, or a message is shorter than its kind.
    """

    def __init__(self, data: bytes | bytearray | UInt8s, lengths: UInt32s) -> None:
        self._data = data
        self.view: UInt8s = np.frombuffer(data, np.uint8)
        self.lengths = lengths
        self.ends: Int64s = np.cumsum(lengths, dtype=np.int64)
        self.starts: Int64s = self.ends - lengths
        if (int(self.ends[-1]) if len(lengths) else 0) != len(self.view) or (len(lengths) and not lengths.all()):
            raise DecodeError(f"{len(lengths)} messages do not make {len(self.view)} bytes")
        kinds = self.view[self.starts]
        self._is_keepalive = (kinds == KEEPALIVE) & (lengths >= _KEEPALIVE_HEAD)
        is_data = (kinds == XLOGDATA) & (lengths > _HEAD)
        self.tags: UInt8s = self.view[np.minimum(self.starts + _HEAD, len(self.view) - 1)] * is_data

    def of(self, *tags: int) -> Int64s:
        """Return the numbers of the messages with some tags."""
        found = self.tags == tags[0]
        for tag in tags[1:]:
            found |= self.tags == tag
        return np.flatnonzero(found)

    @property
    def commits(self) -> Int64s:
        """The numbers of the Commit messages."""
        return self.of(COMMIT)

    @property
    def begins(self) -> Int64s:
        """The numbers of the Begin messages."""
        return self.of(BEGIN)

    @property
    def keepalives(self) -> Int64s:
        """The numbers of the keepalives."""
        return np.flatnonzero(self._is_keepalive)

    def end_lsns(self, commits: Int64s) -> UInt64s:
        """Return the end LSNs of Commit messages."""
        return self._numbers(commits, _HEAD + _COMMIT_END_AT, 8)

    def begun(self, begin: int) -> tuple[int, int, int]:
        """Return commit LSN, commit time, as it is counted by whoever routes it, and xid of a Begin message."""
        self._check(np.array([begin]), _HEAD + _BEGIN_FIELDS)
        at = int(self.starts[begin]) + _HEAD
        body = self.view[at : at + _BEGIN_FIELDS].tobytes()
        lsn, us, xid = body[1:9], body[9:17], body[17:21]
        at_us = min(max(int.from_bytes(us, "big", signed=True), FIRST_COMMIT_US), LAST_COMMIT_US)
        return int.from_bytes(lsn, "big"), at_us, int.from_bytes(xid, "big")

    def keepalive_lsn(self, message: int) -> int:
        """Return the LSN of a keepalive."""
        at = int(self.starts[message]) + KEEPALIVE_LSN
        return int.from_bytes(self.view[at : at + 8].tobytes(), "big")

    def wants_reply(self) -> bool:
        """Whether a keepalive asks for one."""
        whole = self.keepalives[self.lengths[self.keepalives] > KEEPALIVE_REPLY]
        return bool((self.view[self.starts[whole] + KEEPALIVE_REPLY] == 1).any())

    def first_uses(self) -> dict[int, int]:
        """Return the first message that a relation is needed for: OID -> number."""
        rows = self.of(INSERT, UPDATE, DELETE)
        oids = self._numbers(rows, _HEAD + _OID_AT, 4)
        # Most rows follow one of the same relation: of such only the first is looked at.
        is_other = np.ones(len(oids), np.bool_)
        is_other[1:] = oids[1:] != oids[:-1]
        oids, firsts = np.unique(oids[is_other], return_index=True)
        found = dict(zip(oids.tolist(), rows[is_other][firsts].tolist(), strict=True))
        for message in self.of(TRUNCATE).tolist():
            at, end = int(self.starts[message]) + _HEAD + _TRUNCATED_AT, int(self.ends[message])
            for oid in np.frombuffer(self.view[at : end - (end - at) % 4].tobytes(), ">u4").tolist():
                found[oid] = min(found.get(oid, message), message)
        return found

    def described(self) -> list[Described]:
        """Return the Relation messages, each with the Type messages before it."""
        found, types = [], list[bytes]()
        for message in self.of(RELATION, TYPE).tolist():
            payload = self.view[int(self.starts[message]) : int(self.ends[message])].tobytes()
            types.append(payload)
            if self.tags[message] == RELATION:
                oid = int(self._numbers(np.array([message]), _HEAD + _OID_AT, 4)[0])
                found.append(Described(message=message, oid=oid, description=tuple(types)))
                types = []
        return found

    def behind(self, message: int) -> tuple[bytes, UInt32s]:
        """Return the messages from one on."""
        if not message and isinstance(self._data, bytes):
            return self._data, self.lengths
        at = int(self.starts[message]) if message < len(self.starts) else len(self.view)
        return self.view[at:].tobytes(), self.lengths[message:]

    def before(self, message: int) -> tuple[memoryview, UInt32s]:
        """Return the messages before one, not copied."""
        at = int(self.starts[message]) if message < len(self.starts) else len(self.view)
        return self.view[:at].data, self.lengths[:message]

    def _numbers(self, messages: Int64s, at: int, size: int) -> UInt64s:
        self._check(messages, at + size)
        if not len(messages):
            return np.zeros(0, np.uint64)
        # A number at each byte, wherever it lies: so it is read at once, not byte by byte.
        everywhere = np.ndarray((len(self.view) - size + 1,), f">u{size}", self.view, 0, (1,))
        found: UInt64s = everywhere[self.starts[messages] + at].astype(np.uint64)
        return found

    def _check(self, messages: Int64s, size: int) -> None:
        if len(messages) and int(self.lengths[messages].min()) < size:
            raise DecodeError("a message of the stream is shorter than its kind needs")


def heard_at_most(data: bytes, lengths: UInt32s, lsn: int) -> bytes:
    """Return the same with keepalives that name no later LSN than one: behind it another server may go on."""
    messages = StreamMessages(data, lengths)
    ahead = [message for message in messages.keepalives.tolist() if messages.keepalive_lsn(message) > lsn]
    if not ahead:
        return data
    changed = bytearray(data)
    for message in ahead:
        at = int(messages.starts[message]) + KEEPALIVE_LSN
        changed[at : at + 8] = lsn.to_bytes(8, "big")
    return bytes(changed)


def keepalive(lsn: int) -> bytes:
    """Return the payload of a keepalive that says how far a server was heard, and asks for nothing."""
    return bytes([KEEPALIVE]) + lsn.to_bytes(8, "big") + bytes(KEEPALIVE_BYTES - 9)


def is_same(one: Description | None, other: Description) -> bool:
    """Whether two descriptions say the same, whenever they were sent."""
    return one is other or (one is not None and [part[_HEAD:] for part in one] == [part[_HEAD:] for part in other])


__all__ = ["Described", "Description", "StreamMessages", "heard_at_most", "is_same", "keepalive"]
