"""The lag of each source in the last hour, for plots: looked at twice a minute, and lost with the process."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kuvasz.admin.observer import Observer, Snapshot

_LOOK_S: Final = 30.0
_HOUR_S: Final = 3600.0


class LagHistory:
    """The lags. On the loop.

    Args:
        observer: Sees the sources.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._known: dict[str, collections.deque[tuple[float, float]]] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.note(*await self._observer.show(_lags))
            await asyncio.sleep(_LOOK_S)

    def note(self, at: float, lags: Mapping[str, float]) -> None:
        """Take note of the lags of a moment, in unix seconds; sources that are not among them are forgotten.

        Args:
            at: The moment.
            lags: Source -> seconds.
        """
        most = int(_HOUR_S / _LOOK_S)
        self._known = {
            source: self._known.get(source) or collections.deque[tuple[float, float]](maxlen=most) for source in lags
        }
        for source, seconds in lags.items():
            self._known[source].append((at, seconds))

    def of(self, source: str) -> Sequence[tuple[float, float]]:
        """Return unix time and seconds of lag, the oldest first."""
        return tuple(self._known.get(source, ()))


def _lags(snapshot: Snapshot) -> tuple[float, Mapping[str, float]]:
    found = ((source.name, snapshot.lag_seconds(source)) for source in snapshot.view.sources)
    return snapshot.now, {name: seconds for name, seconds in found if seconds is not None}


__all__ = ["LagHistory"]
