"""The numbers of one kind of entries: the next one goes to whoever has none, and none goes to two. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

#: The name of an entry of a map: that of its group, and its own in that.
EntryName: TypeAlias = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumbersOfKind:
    """The numbers of one kind of entries."""

    last: int = 0  #: the greatest that was ever given
    names: Mapping[EntryName, int] = dataclasses.field(default_factory=dict)

    def with_all(self, names: Sequence[EntryName]) -> NumbersOfKind:
        """Return the same with the next numbers for names that have none; itself if all have."""
        new = [name for name in dict.fromkeys(names) if name not in self.names]
        given = {name: self.last + number for number, name in enumerate(new, start=1)}
        return NumbersOfKind(last=self.last + len(new), names={**self.names, **given}) if new else self

    def renamed(self, before: EntryName, after: EntryName) -> NumbersOfKind:
        """Return the same with an entry under another name; itself if there is none."""
        number = self.names.get(before)
        if number is None or before == after:
            return self
        others = {name: other for name, other in self.names.items() if name not in {before, after}}
        return dataclasses.replace(self, names={**others, after: number})

    def as_json(self) -> dict[str, Any]:
        """Return what `of_json` reads."""
        return {"last": self.last, "names": [[list(name), number] for name, number in self.names.items()]}

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> NumbersOfKind:
        """Return what `as_json` made.

        Raises:
            ValueError: It is something else; also KeyError, TypeError and AttributeError.
        """
        names = {tuple(map(str, name)): int(number) for name, number in entry["names"]}
        return cls(last=max([int(entry["last"]), *names.values()]), names=names)


__all__ = ["EntryName", "NumbersOfKind"]
