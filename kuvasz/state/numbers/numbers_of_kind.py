"""The numbers of one kind of entries: the next one goes to whoever has none, and none goes to two. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

#: The name of an entry of a map: that of its group, and its own in that.
EntryName: TypeAlias = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumbersOfKind:
    """The numbers of one kind of entries."""

    last: int = 0  #: the greatest that was ever given
    names: Mapping[EntryName, int] = dataclasses.field(default_factory=dict)
    #: names that entries are about to get, and the number of each: whether they have, the next one sees who asks
    coming: Mapping[EntryName, int] = dataclasses.field(default_factory=dict)

    def with_all(self, names: Sequence[EntryName]) -> NumbersOfKind:
        """Return the same with the next numbers for names that have none; itself if all have.

        A name that was announced is that of the entry it was announced of, unless that is there by its own.
        """
        if arrived := self.coming.keys() & set(names):
            return self._with_arrived(arrived, names).with_all(names)
        new = [name for name in dict.fromkeys(names) if name not in self.names]
        given = {name: self.last + number for number, name in enumerate(new, start=1)}
        named = {**self.names, **given}
        return dataclasses.replace(self, last=self.last + len(new), names=named) if new else self

    def _with_arrived(self, arrived: Collection[EntryName], names: Collection[EntryName]) -> NumbersOfKind:
        found = self
        before = {number: name for name, number in self.names.items()}
        for name in sorted(arrived):
            known = before[self.coming[name]]
            found = found if known in names else found.renamed(known, name)
        coming = {name: number for name, number in found.coming.items() if name not in arrived}
        return dataclasses.replace(found, coming=coming)

    def announced(self, before: EntryName, after: EntryName) -> NumbersOfKind:
        """Return the same, ready for an entry to come by another name; by its own: it comes by no other any more."""
        number = self.names.get(before)
        coming = {name: other for name, other in self.coming.items() if other != number}
        if number is not None and before != after:
            coming[after] = number
        return self if coming == self.coming else dataclasses.replace(self, coming=coming)

    def renamed(self, before: EntryName, after: EntryName) -> NumbersOfKind:
        """Return the same with an entry under another name; itself if there is none."""
        number = self.names.get(before)
        if number is None or before == after:
            return self
        others = {name: other for name, other in self.names.items() if name not in {before, after}}
        gone = {number, self.names.get(after)}
        coming = {name: other for name, other in self.coming.items() if other not in gone}
        return dataclasses.replace(self, names={**others, after: number}, coming=coming)

    def as_json(self) -> dict[str, Any]:
        """Return what `of_json` reads."""
        named, coming = ([[list(name), number] for name, number in one.items()] for one in (self.names, self.coming))
        return {"last": self.last, "names": named, **({"coming": coming} if coming else {})}

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> NumbersOfKind:
        """Return what `as_json` made.

        Raises:
            ValueError: It is something else; also KeyError, TypeError and AttributeError.
        """
        names, coming = (
            {tuple(map(str, name)): int(number) for name, number in listed}
            for listed in (entry["names"], entry.get("coming", ()))
        )
        known = set(names.values())
        coming = {name: number for name, number in coming.items() if number in known}
        return cls(last=max([int(entry["last"]), *known]), names=names, coming=coming)


__all__ = ["EntryName", "NumbersOfKind"]
