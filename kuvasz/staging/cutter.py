"""From gulps to stretches: the stream of one source is cut where transactions end. Pure.

A transaction that has not ended waits for its end, but one that outgrows `part_bytes` goes on in parts. What comes
again after a reconnect, and was cut already, is left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kuvasz.decode.messages import KEEPALIVE_REPLY, TYPE
from kuvasz.errors import DecodeError
from kuvasz.model import UInt32s
from kuvasz.staging.stream_messages import Description, StreamMessages
from kuvasz.staging.stretch import Stretch

#: Bytes of a transaction that waits for its end.
PART_BYTES: Final = 1 << 20

#: Bytes of the descriptions of relations that are kept of one connection, most of which may be none of the map's.
_MOST_DESCRIBED_BYTES: Final = 256 << 20


class Cutter:
    """The cutter of one source's connection.

    Args:
        lsn: Everything before it was cut already.
        ended: End LSN of the last transaction that was.
        number: The number of the last stretch.
        part_bytes: At which an open transaction goes on in parts.
    """

    def __init__(self, lsn: int, ended: int, number: int, part_bytes: int = PART_BYTES) -> None:
        self.lsn = lsn
        self.ended = ended
        self.received_lsn = 0  #: up to which the source has been heard out on this connection
        self._number = number
        self._part_bytes = part_bytes
        self._relations: dict[int, Description] = {}
        self._described_bytes = 0
        self._held: list[tuple[bytes, UInt32s]] = []
        self._held_bytes = 0
        self._open_lsn = 0  #: commit LSN of the transaction that has not ended

    def feed(self, messages: StreamMessages) -> list[Stretch]:
        """Take a gulp, and return the stretches that it completes. Nothing of the gulp's memory is kept.

        Raises:
            DecodeError: The bytes are not what the protocol says.
        """
        found: list[Stretch] = []
        begins, lengths = messages.begins, messages.lengths
        last_commit = int(messages.commits[-1]) if len(messages.commits) else -1
        behind = begins[begins > last_commit]
        is_open = bool(len(behind)) or (last_commit < 0 and self._open_lsn != 0)
        begin = int(behind[0]) if len(behind) else 0
        cut = begin if is_open else len(lengths)
        if cut:
            found += self._whole(*messages.before(cut))
        if len(behind):
            self._open_lsn = messages.begun(begin)[0]
        if cut < len(lengths):
            self._hold(*messages.behind(cut))
            if self._held_bytes >= self._part_bytes:
                found += self._part()
        return found

    def _hold(self, data: bytes, lengths: UInt32s) -> None:
        self._held.append((data, lengths.copy()))
        self._held_bytes += len(data)

    def _joined(self, *last: tuple[memoryview, UInt32s]) -> tuple[bytes, UInt32s]:
        """Return what is held, and what comes behind it, in memory of its own."""
        parts: list[tuple[bytes | memoryview, UInt32s]] = [*self._held, *last]
        self._held, self._held_bytes = [], 0
        return b"".join(data for data, _ in parts), np.concatenate([lengths for _, lengths in parts])

    def _whole(self, data: memoryview, lengths: UInt32s) -> list[Stretch]:
        self._open_lsn = 0
        messages = StreamMessages(*self._joined((data, lengths)))
        commits = messages.commits
        first = 0
        if len(commits):
            ends = messages.end_lsns(commits)
            came_again = commits[ends <= self.ended]
            first = int(came_again[-1]) + 1 if len(came_again) else 0
            self.ended = max(self.ended, int(ends[-1]))
            self.received_lsn = max(self.received_lsn, int(ends[-1]))
        after = messages.keepalives
        after = after[after > (int(commits[-1]) if len(commits) else -1)]
        for message in after.tolist():
            self.received_lsn = max(self.received_lsn, messages.keepalive_lsn(message))
        self.lsn = max(self.lsn, self.received_lsn)
        return self._cut(messages, first, open_lsn=0)

    def _part(self) -> list[Stretch]:
        messages = StreamMessages(*self._joined())
        others = np.flatnonzero(messages.tags != TYPE)
        last = int(others[-1]) + 1 if len(others) else 0
        if last < len(messages.lengths):  # what these types are of is still to come
            self._hold(*messages.behind(last))
            data, lengths = messages.before(last)
            messages = StreamMessages(data.tobytes(), lengths)
        is_again = self._open_lsn < self.ended
        return self._cut(messages, len(messages.lengths) if is_again else 0, open_lsn=self._open_lsn)

    def _cut(self, messages: StreamMessages, first: int, *, open_lsn: int) -> list[Stretch]:
        """Return the messages from one on as a stretch, if there are any; those before came already."""
        described = messages.described()
        for one in described:
            if one.message < first:
                self._know(one.oid, one.description)
        if first >= len(messages.lengths):
            return []
        data, lengths = messages.behind(first)
        if first:
            messages = StreamMessages(data, lengths)
            described = messages.described()
        itself = {}
        begins: dict[int, int] = {}
        for one in described:
            itself[one.oid] = one.description
            begins.setdefault(one.oid, one.message)
        needs = {
            oid: self._relations[oid]
            for oid, message in messages.first_uses().items()
            if oid in self._relations and message < begins.get(oid, len(lengths))
        }
        for oid, description in itself.items():
            self._know(oid, description)
        self._number += 1
        return [
            Stretch(
                number=self._number, data=_unasked(data, messages), lengths=lengths, lsn=self.lsn, ended=self.ended,
                open_lsn=open_lsn, needs=needs, describes=itself, has_rows=bool((messages.tags != 0).any()),
            )
        ]  # fmt: skip

    def _know(self, oid: int, description: Description) -> None:
        """Keep how a relation was described last: a source may have any number of them, and lie of more.

        Raises:
            DecodeError: They are too many; the next connection begins without any.
        """
        before = self._relations.get(oid, ())
        self._described_bytes += sum(map(len, description)) - sum(map(len, before))
        self._relations[oid] = description
        if self._described_bytes > _MOST_DESCRIBED_BYTES:
            what = f"the descriptions of {len(self._relations):,} relations have {self._described_bytes:,} bytes"
            hint = "it begins again by itself; publish the tables of the map alone"
            raise DecodeError(f"{what}, on one connection", hint=hint)


def _unasked(data: bytes, messages: StreamMessages) -> bytes:
    """Return the same without keepalives that ask for a reply: whoever reads the stream has answered."""
    if not messages.wants_reply():
        return data
    quiet = bytearray(data)
    for message in messages.keepalives.tolist():
        if messages.lengths[message] > KEEPALIVE_REPLY:
            quiet[int(messages.starts[message]) + KEEPALIVE_REPLY] = 0
    return bytes(quiet)


__all__ = ["PART_BYTES", "Cutter"]
