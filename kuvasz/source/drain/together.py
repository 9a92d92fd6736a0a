"""What has arrived at many connections, taken by one call of the compiled body.

Of sources that bring little, calls cost more than what they bring: a look at each by itself is ten microseconds of
Python around two system calls.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from kuvasz.source.drain.kernel import EMPTY, drain_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.model import Int64s, UInt8s, UInt32s
    from kuvasz.source.drain.plain import SharedDrain

#: What is taken of a connection at most: one that has more is read by itself.
MOST_BYTES: Final = 16 << 10

#: The most connections of one call, and the messages that they may have together.
MOST_AT_ONCE: Final = 64
_MOST_MESSAGES: Final = 64 * MOST_AT_ONCE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TakenMessages:
    """What was taken of some connections, one after another."""

    payloads: UInt8s
    lengths: UInt32s  #: bytes of each message
    message_ends: Int64s  #: per connection: the number of messages up to its last one
    byte_ends: Int64s  #: per connection: the bytes up to its last one
    is_all: list[bool]  #: per connection: nothing else has arrived, and the stream goes on
    pending: Int64s  #: per connection: address and size of a message that is taken from libpq, and not yet here


def take(drains: Sequence[SharedDrain]) -> TakenMessages:
    """Take what has arrived at connections that hold nothing, at most `MOST_AT_ONCE`, which share one libpq.

    Args:
        drains: What takes from each by itself; `SharedDrain.hold` gives it what is to go on there.
    """
    count = len(drains)
    payloads = np.empty(MOST_BYTES * count, np.uint8)
    lengths = np.empty(_MOST_MESSAGES, np.uint32)
    message_ends, byte_ends = np.empty(count, np.int64), np.empty(count, np.int64)
    codes, pending = np.empty(count, np.int64), np.zeros((count, 2), np.int64)
    pointers = np.array([drain.pointer for drain in drains], np.int64)
    _take(*drains[0].functions, pointers, pending, payloads, lengths, message_ends, byte_ends, codes, MOST_BYTES)
    return TakenMessages(
        payloads=payloads, lengths=lengths, message_ends=message_ends, byte_ends=byte_ends,
        is_all=(codes == EMPTY).tolist(), pending=pending,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _take(  # noqa: PLR0913 - flat arguments are what a kernel is called fastest with
    get: int,
    free: int,
    consume: int,
    pointers: Int64s,
    pending: Int64s,
    payloads: UInt8s,
    lengths: UInt32s,
    message_ends: Int64s,
    byte_ends: Int64s,
    codes: Int64s,
    most_bytes: int,
) -> None:
    used = count = 0
    for number in range(len(pointers)):
        used, count, code = drain_one(
            get, free, consume, pointers[number], pending[number], payloads, lengths, used, count, used + most_bytes
        )
        message_ends[number], byte_ends[number], codes[number] = count, used, code


__all__ = ["MOST_AT_ONCE", "MOST_BYTES", "TakenMessages", "take"]
