"""Whether a source's server has written nothing since a look, so that another look would show the same.

Whatever a look is for stands in the catalogs, or in the files of tables, and a change of either is written to the WAL
first, whichever database of the server it is in (manual, section 28.3 "Write-Ahead Logging"). So there is nothing
to look at while the walsender has sent no more WAL than there was before the last look, and says so when asked now.
A thousand sources at rest cost a packet each then, and no session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kuvasz.source.reading.reader import Reader
    from kuvasz.sync.context.current_reader import CurrentReader

#: Looks in a row that are left out: what is not written to the WAL, a setting of the server, is seen then.
_MOST: Final = 20


class Standstill:
    """The standstill of one source's server since a look that found all well. Called on the loop.

    Args:
        current: Its reader.
    """

    def __init__(self, current: CurrentReader) -> None:
        self._current = current
        self._seen: tuple[Reader, int, int] | None = None  # whose stream, its connection, and the bytes of changes
        self._end_lsn = 0
        self._left_out = 0

    def begin(self) -> None:
        """Take note of where the stream stands: a look begins."""
        self._seen, self._end_lsn, self._left_out = _standing(self._current.reader), 0, 0

    def found(self, end_lsn: int) -> None:
        """Take note that it found all well.

        Args:
            end_lsn: Where the WAL ended before it, all commits of which it has seen; 0: perhaps not.
        """
        self._end_lsn = end_lsn

    async def lasts(self) -> bool:
        """Ask the server whether nothing was written since; False also if nobody can say, or it is time to look."""
        reader = self._current.reader
        if reader is None or not self._end_lsn or self._left_out >= _MOST:
            return False
        sent_lsn = await reader.ask_sent_lsn()
        if sent_lsn is None or sent_lsn > self._end_lsn or _standing(self._current.reader) != self._seen:
            return False
        self._left_out += 1
        return True


def _standing(reader: Reader | None) -> tuple[Reader, int, int] | None:
    if reader is None:
        return None
    return reader, reader.epoch, reader.facts.bytes - reader.facts.keepalive_bytes


__all__ = ["Standstill"]
