"""The lag of each source in the last hour, and how fast changes come: looked at twice a minute, lost at the end."""

from __future__ import annotations

import array
import asyncio
import collections
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kuvasz.admin.observer import Observer, Snapshot

_LOOK_S: Final = 30.0
_HOUR_S: Final = 3600.0
_MOST: Final = int(_HOUR_S / _LOOK_S)

#: Looks over which changes are counted.
_RATE_LOOKS: Final = 5


class LagHistory:
    """The lags, a number for each look and source: thousands of sources take a few megabytes. On the loop.

    Args:
        observer: Sees the sources.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._times: collections.deque[float] = collections.deque(maxlen=_MOST)
        self._lags: dict[str, array.array[float]] = {}  #: of the last looks, as many as it was there for
        self._rows: collections.deque[tuple[float, Mapping[str, int]]] = collections.deque(maxlen=_RATE_LOOKS)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.note(*await self._observer.show(_seen))
            await asyncio.sleep(_LOOK_S)

    def note(self, at: float, lags: Mapping[str, float | None], rows: Mapping[str, int]) -> None:
        """Take note of a moment, in unix seconds; sources that are not there are forgotten.

        Args:
            at: The moment.
            lags: Source -> seconds; None: not known.
            rows: Source -> changes since the start.
        """
        self._times.append(at)
        self._lags = {source: self._lags.get(source) or array.array("f") for source in lags}
        for source, seconds in lags.items():
            mine = self._lags[source]
            mine.append(math.nan if seconds is None else seconds)
            del mine[:-_MOST]
        self._rows.append((at, rows))

    def of(self, source: str) -> Sequence[tuple[float, float]]:
        """Return unix time and seconds of lag, the oldest first."""
        known = self._lags.get(source, ())
        times = list(self._times)[len(self._times) - len(known) :]
        return tuple((at, lag) for at, lag in zip(times, known, strict=True) if not math.isnan(lag))

    def rates(self) -> Mapping[str, float]:
        """Return the changes a second of each source in the last minutes; one begun anew has none at first."""
        if len(self._rows) < 2:
            return {}
        (begin, before), (end, now) = self._rows[0], self._rows[-1]
        return {
            source: (rows - before[source]) / max(end - begin, 1e-9)
            for source, rows in now.items()
            if source in before and rows >= before[source]
        }


def _seen(snapshot: Snapshot) -> tuple[float, Mapping[str, float | None], Mapping[str, int]]:
    sources = snapshot.view.sources
    lags = {source.name: snapshot.lag_seconds(source) for source in sources}
    return snapshot.now, lags, {source.name: source.rows for source in sources}


__all__ = ["LagHistory"]
