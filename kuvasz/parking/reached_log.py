"""A parking log whose reach is noted where the log is not: one that ends before it is an older copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz import lsn
from kuvasz.parking.log import NO_LIMIT, ParkingLog
from kuvasz.parking.ports import LogDamaged
from kuvasz.parking.reach import Reach, StoredReach
from kuvasz.seal.sealing_secrets import SealingSecrets

if TYPE_CHECKING:
    from kuvasz.route.parts import Change


class ReachedLog(ParkingLog):
    """The log.

    Args:
        path: Where its file is.
        source: The source's name, for the segments.
        secrets: What row messages are sealed with, and opened.
        reaches: Where its reach is noted.
    """

    def __init__(self, path: Path, source: str, secrets: SealingSecrets, reaches: Sequence[StoredReach]) -> None:
        super().__init__(path, source, secrets)
        self._reaches = reaches

    @override
    def load(self) -> None:
        """See `ParkingLog.load`.

        Raises:
            LogDamaged: Or it ends before its reach.
            StateError: Or its reach cannot be had now.
        """
        super().load()
        for kept in self._reaches:
            found = kept.read()
            if found is not None and found.log_id == self.id and found.last_lsn > self.last_lsn:
                raise LogDamaged(
                    f"{self.place} is an older copy: it ends at {lsn.render(self.last_lsn)}, and had changes up to"
                    f" {lsn.render(found.last_lsn)}"
                )

    @override
    def append(
        self, changes: Sequence[Change], through: int, *, is_open: bool, most_bytes: int = NO_LIMIT
    ) -> bool:  # fmt: skip
        """See `TableLog.append`."""
        before = self.last_lsn
        is_kept = super().append(changes, through, is_open=is_open, most_bytes=most_bytes)
        if self.last_lsn > before:
            for kept in self._reaches:
                kept.note(Reach(self.id, self.last_lsn))
        return is_kept


__all__ = ["ReachedLog"]
