"""What a reader shows of itself while it runs."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.errors import KuvaszError


class ReaderState(enum.Enum):
    """What a reader is doing."""

    CONNECTING = "connecting"
    STREAMING = "streaming"
    WAITING = "waiting"  #: after a failure, for the next attempt
    STOPPED = "stopped"


@dataclasses.dataclass(slots=True, kw_only=True)
class ReaderFacts:
    """The facts of one reader. Its parts write here, everybody else reads. Times are monotonic seconds."""

    state: ReaderState = ReaderState.CONNECTING
    error: KuvaszError | None = None  #: the last one; None once the stream flows again
    bytes: int = 0  #: received, with the protocol's headers
    keepalive_bytes: int = 0  #: of these, what is known to be keepalives alone
    confirmed_lsn: int = 0  #: last sent to the server
    last_message_at: float | None = None  #: of the last bytes from the server
    last_status_at: float | None = None  #: of the last status update
    is_paused: bool = False  #: blocked by the memory budget
    retry_at: float | None = None  #: of the next attempt, while waiting for it


__all__ = ["ReaderFacts", "ReaderState"]
