"""What is wrong with the rows that the lake has of a random history.

A field has values of one column only, whatever happened; a table that follows has what its source has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support import history_rules
from tests.support.histories import Story
from tests.support.history_model import FIRST, NAMES, Version, is_default
from tests.support.tagged_values import UNIT, number_of

_HIDDEN = "***"
_UNKNOWN = -1  #: of a pseudonym

Row = Mapping[str, Any]


class Lake:
    """What the lake has of a story.

    Args:
        story: It.
        rows: Of its source.
        fields: Number of each of its columns that the lake ever knew -> name of the field for it.
        is_shared: Whether another source has the table too, whose names count as well.
    """

    def __init__(self, story: Story, rows: Sequence[Row], fields: Mapping[int, str], *, is_shared: bool) -> None:
        self._story, self._model, self._rule = story, story.model, story.rule
        self._rows, self._fields, self._is_shared = rows, fields, is_shared
        self._is_now = story.is_now
        defaults = {number * UNIT + count for number in range(100) for count in (9_998, 9_999)}
        self._pseudonyms = history_rules.pseudonyms(story.written | defaults) if story.rule.mask else {}

    def problems(self, *, is_whole: bool) -> list[str]:
        """Return what is wrong.

        Args:
            is_whole: Whether the table follows, so that nothing may be missing.
        """
        found = [*self._impure(is_whole=is_whole), *self._bare()]
        return found if found or not is_whole else self._missing()

    def _values(self, row: Row) -> Iterable[tuple[str, int]]:
        """Yield the numbers that a row shows, by their fields."""
        for name, value in row.items():
            base = name.split("__old")[0]
            if base not in NAMES or value is None or value == _HIDDEN:
                continue
            is_pseudonym = isinstance(value, str) and len(value) == 64
            yield name, self._pseudonyms.get(value, _UNKNOWN) if is_pseudonym else number_of(value)

    def _impure(self, *, is_whole: bool) -> list[str]:
        """Say where a field has values of several columns, or a name those of another column than it is of."""
        held: dict[str, set[int]] = {}
        for row in self._rows:
            for name, value in self._values(row):
                held.setdefault(name, set()).add(value // UNIT)
        found, numbers = [], self._model.names
        for name, columns in held.items():
            others = columns - {numbers.get(name)}
            if len(columns) > 1 and not self._is_shared:
                found.append(f"{name} holds values of columns {sorted(columns)}")
            elif is_whole and name in numbers and others and not self._is_shared:
                found.append(f"{name} is column {numbers[name]} and holds values of {sorted(columns)}")
            elif is_whole and name in numbers and others & self._model.columns.keys():
                found.append(f"{name} is column {numbers[name]} and holds live values of {sorted(columns)}")
        return found

    def _bare(self) -> list[str]:
        """Say which values are shown that the map hides."""
        return [
            f"{name} of version {row.get('tag')} is not hidden: {row[name]}"
            for row in self._rows for name in self._rule.mask
            if row.get(name) not in (None, _HIDDEN) and len(str(row[name])) != 64
        ]  # fmt: skip

    def _wanted(self) -> list[Version]:
        if self._is_now:
            versions = list(self._model.rows.values())
        else:
            skipped = self._model.overtaken if self._story.kind == "history" else set()
            versions = [one for one in self._model.versions if one.tag not in skipped]
        return [one for one in versions if self._story.is_kept(one)]

    def _missing(self) -> list[str]:
        lake: dict[int, list[Row]] = {}
        for row in self._rows:
            if row.get("_op") not in {"D", "T"}:
                lake.setdefault(row["tag"], []).append(row)
        wanted = self._wanted()
        tags = Counter({tag: len(held) for tag, held in lake.items()})
        expected = Counter(version.tag for version in wanted)
        if tags != expected:
            return [f"versions {dict(expected - tags)} are missing, {dict(tags - expected)} are too many"]
        check = self._computed if self._rule.is_computed else self._carried
        return [f"version {one.tag}: {what}" for one in wanted for what in check(one, *lake[one.tag])]

    def _carried(self, version: Version, row: Row) -> Iterable[str]:
        """Say which values of a version are not where they should be."""
        held, model = dict(self._values(row)), self._model
        for number, value in version.values.items():
            is_live = number in model.columns
            name = model.columns[number].name if is_live else ""
            if row.get(name) == _HIDDEN or (_HIDDEN in row.values() and not self._is_now):
                continue
            if self._is_now and is_live and not self._is_shared:
                if held.get(name) != value:
                    yield f"{name} is not {value}: {held}"
            elif is_default(value) or not (is_live or number in self._fields):
                continue
            elif not model.shown(value) & set(held.values()):
                yield f"{value} is nowhere: {held}"
        if self._is_now:
            more = {one for one in held.values() if one // UNIT in model.columns} - set(version.values.values())
            yield from (f"{value} is too much" for value in sorted(more))

    def _computed(self, version: Version, row: Row) -> Iterable[str]:
        """Say what of a version is not as the map's `set` makes it."""
        wanted = [one for one in self._story.read(version) if one is not None]
        if (made := history_rules.numbers_of(row["both"])) != wanted:
            yield f"both is {made}, not {wanted}"
        number = self._model.names.get("c", 0) if self._is_now else FIRST + NAMES.index("c")
        carried = dict(self._values(row)).get("c")
        if carried != version.values.get(number):
            yield f"c is {carried}, not {version.values.get(number)}"


__all__ = ["Lake"]
