"""Which targets each source fed, by which sid, and what its patterns were matched with, a document each."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from typing_extensions import override

from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import StoredFeeds


class FeedDocuments(StoredFeeds):
    """The feeds.

    Args:
        feeds: Where the targets of feeders are.
        sids: Where the sids of sources are.
        tables: Where the tables of sources are that patterns were matched with.
    """

    def __init__(self, feeds: Documents, sids: Documents, tables: Documents) -> None:
        self._feeds = feeds
        self._sids = sids
        self._tables = tables

    @override
    def known(self) -> Mapping[str, frozenset[str]]:
        """See `StoredFeeds.known`."""
        found = self._feeds.all()
        with contextlib.suppress(TypeError):
            return {feeder: frozenset(targets) for feeder, targets in found.items()}
        return {}

    @override
    def sids(self) -> Mapping[str, str | None]:
        """See `StoredFeeds.sids`."""
        found = self._sids.all()
        with contextlib.suppress(TypeError, KeyError):
            return {source: one["sid"] for source, one in found.items()}
        return {}

    @override
    def keep(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None] | None = None) -> None:
        """See `StoredFeeds.keep`."""
        self._feeds.put({feeder: sorted(targets) for feeder, targets in feeds.items()})
        self._sids.put({source: {"sid": sid} for source, sid in (sids or {}).items()})

    @override
    def seen(self) -> Mapping[str, Sequence[tuple[str, bool, int]]]:
        """See `StoredFeeds.seen`."""
        found = self._tables.all()
        with contextlib.suppress(TypeError, KeyError, ValueError):
            return {
                source: tuple((str(table), bool(has_key), int(since)) for table, has_key, since in one["tables"])
                for source, one in found.items()
            }
        return {}

    @override
    def see(self, tables: Mapping[str, Sequence[tuple[str, bool, int]]]) -> None:
        """See `StoredFeeds.see`."""
        self._tables.put({source: {"tables": [list(one) for one in found]} for source, found in tables.items()})

    @override
    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """See `StoredFeeds.turn`."""
        with self._tables.turn():
            yield True


__all__ = ["FeedDocuments"]
