"""What is staged of one source, as far as its slot has to agree with it; without a staged log nothing is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.errors import SourceError, place_of

if TYPE_CHECKING:
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.ports import SourceRecord
    from kuvasz.state.progress import Progress
    from kuvasz.state.staged.ports import StagedPosition


class StagedPast:
    """The past of one source in the staged log. What blocks is called in threads.

    Args:
        log: The log; None: there is none.
        source: The source's name.
        progress: How far sources are in the lake.
    """

    def __init__(self, log: StagedLog | None, source: str, progress: Progress) -> None:
        self._log = log
        self._source = source
        self._progress = progress
        self._seen: StagedPosition | None = None
        self._is_heard = False  #: as a group of the log has it: what is staged goes on from where its lake is

    @property
    def is_there(self) -> bool:
        """Whether there is a log."""
        return self._log is not None

    @property
    def is_read_elsewhere(self) -> bool:
        """Whether another process has the source's slot, and goes on with it whatever happens here."""
        return self._log is not None and self._log.follower is not None

    @property
    def group(self) -> str | None:
        """The group of the log that has no slots of its own, and hears the first one's; None: it is that one."""
        return None if self._log is None else self._log.group

    def look(self) -> None:
        """Have what is staged by now be what the source is compared with: called when its slot has been looked at.

        Where another process stages, the log grows: a slot that was seen before is no further than what is seen now,
        and the end of the WAL, which is asked for after it, is.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is not None and self.group is not None:
            self._seen = self._log.rejoin(self._source)
            self._is_heard = self._seen is not None
        elif self._log is not None and self.is_read_elsewhere:
            self._seen = self._log.look(self._source)

    def release(self) -> bool:
        """Have nobody read the slot any more that is to go; return whether another process may still be at it.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is None or not self.is_read_elsewhere or self.group is not None:
            return False
        self._log.withdraw(self._source)
        return True

    def _position(self) -> StagedPosition:
        assert self._log is not None
        return self._seen or self._log.source(self._source).known

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the source there."""
        if self._log is None:
            return False
        return self._is_heard if self.group is not None else self._log.source(self._source).position is not None

    @property
    def is_forgotten(self) -> bool:
        """Whether there is a log, and nothing is known of the source there."""
        return self._log is not None and not self.is_known

    @property
    def ended_lsn(self) -> int:
        """End of the last transaction that is staged; 0 for none."""
        return self._position().ended if self._log is not None and self.is_known else 0

    def standing(self, standing: SourceRecord) -> SourceRecord:
        """Return what is known of the source, with what its server was told at most: what is staged."""
        if self._log is None or not self.is_known:
            return standing
        return dataclasses.replace(standing, confirmed_lsn=self._position().lsn)

    def begin_anew(self, lsn: int) -> None:
        """Begin at an LSN, whatever was before.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is not None:
            self._log.begin_anew(self._source, lsn)
            self._is_heard = True
        self._seen = None
        self._progress.begin_anew(self._source, lsn)

    def take_up(self, lsn: int) -> None:
        """Begin at an LSN, if nothing is staged yet; a group goes on where its lake is.

        Raises:
            StateError: The coordinator does not answer.
        """
        self._seen = None
        if self._log is not None and not self.is_known:
            self._log.begin_anew(self._source, lsn)
            self._is_heard = True
        elif self._log is not None and self.group is not None:
            # The first group may have set it back since this process began.
            self._progress.begin_anew(self._source, self._log.source(self._source).applied)

    def set_back(self, lsn: int) -> None:
        """Go on behind an LSN of a server that took over.

        Raises:
            StateError: The coordinator does not answer.
            SourceError: More of the server before was staged since it was looked at.
        """
        if self._log is None:
            self._progress.begin_anew(self._source, lsn)
            return
        seen = self._seen
        self.take_up(lsn)
        applied = self._log.set_back(self._source, lsn)
        # Who reads may have been at the server before until now, and stages nothing of it from now on.
        now = self._log.look(self._source) if self.is_read_elsewhere else None
        if seen is not None and now is not None and now.ended > seen.ended:
            message = (
                f"{place_of(self._source)}: more of the server before was staged than the new one was compared with"
            )
            raise SourceError(message, hint="it is compared again")
        self._progress.begin_anew(self._source, applied)


__all__ = ["StagedPast"]
