"""The relations of one parking log by number: changes name them so."""

from __future__ import annotations

from kuvasz.model import Relation


class RelationNumbers:
    """Numbers count from 0, in the order in which relations stand in the log."""

    def __init__(self) -> None:
        self._relations: list[Relation] = []
        self._numbers: dict[Relation, int] = {}
        self._kept = 0

    def __len__(self) -> int:
        return len(self._relations)

    def __getitem__(self, number: int) -> Relation:
        return self._relations[number]

    def find(self, relation: Relation) -> int | None:
        """Return a relation's number; None if it has none."""
        return self._numbers.get(relation)

    def add(self, relation: Relation) -> int:
        """Give a relation the next number, and return that."""
        number = self._numbers[relation] = len(self._relations)
        self._relations.append(relation)
        return number

    def keep(self, count: int) -> None:
        """Take note that so many stand before the end of the last whole transaction."""
        self._kept = count

    def cut(self) -> None:
        """Forget those that are not kept: what they stood in is cut off."""
        for relation in self._relations[self._kept :]:
            self._numbers.pop(relation, None)
        del self._relations[self._kept :]


__all__ = ["RelationNumbers"]
