"""What the columns of a table meant in each transaction that wrote rows of it, for whoever is asked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from kuvasz import lsn

_AT = re.compile(r"the transaction at ([0-9A-F]+/[0-9A-F]+) means")
_PROBABLY = re.compile(r"its rows probably mean \(([^)]*)\)")


class Meanings:
    """Of one table.

    Args:
        wal_end: Gives where the source's WAL ends now.
    """

    def __init__(self, wal_end: Callable[[], int]) -> None:
        self._wal_end = wal_end
        self._transactions: list[tuple[int, int, set[str]]] = []  #: from, to, what columns meant in some row's time
        self._now: set[str] = set()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Rows that are written within it are of one transaction."""
        begin, self._now = self._wal_end(), set()
        yield
        self._transactions.append((begin, self._wal_end(), self._now))

    @contextlib.contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Rows that are written within it are not of the transaction."""
        before = set(self._now)
        yield
        self._now &= before

    def note(self, numbers: Mapping[str, int]) -> None:
        """Note what the columns mean of a row that is written now.

        Args:
            numbers: Name -> number, of those that change.
        """
        known = {"id": 1, "tag": 2, **numbers}
        named = sorted(known.items(), key=lambda item: item[1])
        self._now.add(", ".join(f"{name} is number {number}" for name, number in named))

    def are_as(self, error: str) -> bool:
        """Whether an error's hint is right about the transaction that it names."""
        at, probably = _AT.search(error), _PROBABLY.search(error)
        if at is None or probably is None:
            return False
        commit_lsn = lsn.parse(at[1])
        meant = [what for begin, end, what in self._transactions if begin <= commit_lsn < end]
        return any(probably[1] in what for what in meant)


__all__ = ["Meanings"]
