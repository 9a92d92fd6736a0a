"""What reads the stream of one source now: set by whoever opens connections, asked by all who live beside them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.source.reading.reader import Reader

_POLL_S = 0.02


class CurrentReader:
    """The reader of one source, while there is one. Set on the loop, asked from any thread."""

    def __init__(self) -> None:
        self.reader: Reader | None = None

    @property
    def is_there(self) -> bool:
        """Whether the source streams."""
        return self.reader is not None

    @property
    def heard_lsn(self) -> int:
        """Up to where the stream has been heard out; 0 without one."""
        reader = self.reader
        return 0 if reader is None else reader.received_lsn

    def rewind(self) -> None:
        """Go on from the confirmed LSN in another connection."""
        if self.reader is not None:
            self.reader.rewind()

    def quiesce(self) -> None:
        """Stop reading, go on confirming."""
        if self.reader is not None:
            self.reader.quiesce()

    def stop(self) -> None:
        """Confirm what is durable and end."""
        if self.reader is not None:
            self.reader.stop()


async def reached(reader: Reader, epoch: int) -> None:
    """Wait until a reader has begun anew; whoever waits is cancelled when it ends."""
    while reader.epoch < epoch:  # noqa: ASYNC110 (it tells nobody)
        await asyncio.sleep(_POLL_S)


__all__ = ["CurrentReader", "reached"]
