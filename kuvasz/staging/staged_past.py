"""What is staged of one source, as far as its slot has to agree with it; without a staged log nothing is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.ports import SourceRecord
    from kuvasz.state.progress import Progress


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

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the source there."""
        return self._log is not None and self._log.source(self._source).position is not None

    @property
    def ended_lsn(self) -> int:
        """End of the last transaction that is staged; 0 for none."""
        return self._log.source(self._source).known.ended if self._log is not None and self.is_known else 0

    def standing(self, standing: SourceRecord) -> SourceRecord:
        """Return what is known of the source, with what its server was told at most: what is staged."""
        if self._log is None or not self.is_known:
            return standing
        return dataclasses.replace(standing, confirmed_lsn=self._log.source(self._source).known.lsn)

    def begin_anew(self, lsn: int) -> None:
        """Begin at an LSN, whatever was before.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is not None:
            self._log.begin_anew(self._source, lsn)
        self._progress.begin_anew(self._source, lsn)

    def take_up(self, lsn: int) -> None:
        """Begin at an LSN, if nothing is staged yet.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is not None and not self.is_known:
            self._log.begin_anew(self._source, lsn)

    def set_back(self, lsn: int) -> None:
        """Go on behind an LSN of a server that took over.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._log is None:
            self._progress.begin_anew(self._source, lsn)
        else:
            self.take_up(lsn)
            self._progress.begin_anew(self._source, self._log.set_back(self._source, lsn))


__all__ = ["StagedPast"]
