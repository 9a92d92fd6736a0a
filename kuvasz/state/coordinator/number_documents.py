"""The numbers of the map's entries, a document for each kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.numbers.numbers_of_kind import EntryName, NumbersOfKind
from kuvasz.state.ports import StoredNumbers


class NumberDocuments(StoredNumbers):
    """The numbers.

    Args:
        documents: Where they are, by kind.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._turn = threading.Lock()

    @override
    def given(self, kind: str, names: Sequence[EntryName]) -> Mapping[EntryName, int]:
        """See `StoredNumbers.given`."""
        with self._turn:
            before = self._of(kind)
            found = before.with_all(names)
            if found is not before:  # several processes may be asked at a time: none gives a number twice
                self._change(kind, lambda now: now.with_all(names))
                found = self._of(kind)
        return {name: found.names[name] for name in names}

    @override
    def announce(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.announce`."""
        with self._turn:
            self._change(kind, lambda now: now.announced(before, after))

    @override
    def rename(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.rename`."""
        with self._turn:
            self._change(kind, lambda now: now.renamed(before, after))

    @override
    def all(self) -> Mapping[str, NumbersOfKind]:
        """See `StoredNumbers.all`."""
        return {kind: self._read(found) for kind, found in self._documents.all().items()}

    @override
    def bring(self, kinds: Mapping[str, NumbersOfKind]) -> None:
        """See `StoredNumbers.bring`."""
        self._documents.put({kind: numbers.as_json() for kind, numbers in kinds.items()})

    def _of(self, kind: str) -> NumbersOfKind:
        """Return the numbers of a kind as they are now: another process may have given some since."""
        found = self._documents.get(kind)
        return NumbersOfKind() if found is None else self._read(found)

    def _read(self, found: Any) -> NumbersOfKind:  # noqa: ANN401 (JSON)
        try:
            return NumbersOfKind.of_json(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"{self._documents.place}: cannot be read: {error}",
                hint="another version of kuvasz wrote them: run that one; without them entries get other numbers",
            ) from error

    def _change(self, kind: str, change: Callable[[NumbersOfKind], NumbersOfKind]) -> None:
        def changed(content: Any) -> Any:  # noqa: ANN401 (JSON)
            now = NumbersOfKind() if content is None else self._read(content)
            after = change(now)
            return content if after is now else after.as_json()

        self._documents.change(kind, changed)


__all__ = ["NumberDocuments"]
