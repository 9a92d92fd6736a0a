"""What is told of commits: a line in the log, and whoever wants to hear of them."""

from __future__ import annotations

from collections.abc import Callable

from kuvasz import lsn
from kuvasz.events import Event, EventLog
from kuvasz.ports import Receipt

_log = EventLog(__name__)


class Receipts:
    """All commits of streamed changes. `tell` is called in workers' threads."""

    def __init__(self) -> None:
        self._observers: list[Callable[[Receipt], None]] = []

    def observe(self, observer: Callable[[Receipt], None]) -> None:
        """Have a function called for every commit, in a worker's thread; call before the workers start."""
        self._observers.append(observer)

    def tell(self, receipt: Receipt) -> None:
        """Tell of a commit: at `debug` one line per table and mini-transaction."""
        if receipt.snapshot_id is not None and _log.is_told(Event.COMMITTED):
            _log.tell(
                Event.COMMITTED,
                table=receipt.target,
                rows=receipt.rows,
                snapshot=receipt.snapshot_id,
                positions={source: lsn.render(position.lsn) for source, position in receipt.positions.items()},
                source_commit_us=receipt.commit_us,
                seconds=round(receipt.seconds, 4),
            )
        for observer in self._observers:
            observer(receipt)


__all__ = ["Receipts"]
