"""Which column of the catalog a Relation message means: its columns have names and types, but no numbers. Pure.

A message lists the columns that were there at its time in the order of their numbers, and new columns are always at
the end. The catalog is looked at after that time. So the message's columns are some of the numbers there ever were,
in order, and every column that is there now and stands before the last of them is among them. Names that a column is
known to have had settle the rest; what they leave open is not guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from kuvasz.evolve.known import SourceColumns
from kuvasz.model import Column, Relation

#: Steps of the search before the answer is "cannot be told"; a table without dropped columns takes one a column.
_MOST_STEPS = 20_000


def number(message: Relation, now: Relation, known: SourceColumns | None) -> Relation | None:
    """Return the message's relation with its columns numbered, None if more than one way or no way fits.

    Args:
        message: As the stream describes the table.
        now: As the catalog describes it, not before the message's time.
        known: What is remembered of it.
    """
    numbers = _same(message.columns, now.columns) or _search(message.columns, now, known)
    if numbers is None:
        return None
    grids = {column.attnum for column in now.columns if column.is_grid}
    columns = tuple(
        dataclasses.replace(column, attnum=attnum, is_grid=attnum in grids)
        for column, attnum in zip(message.columns, numbers, strict=True)
    )
    return dataclasses.replace(message, columns=columns)


def _same(message: Sequence[Column], now: Sequence[Column]) -> list[int] | None:
    if [_face(column) for column in message] != [_face(column) for column in now]:
        return None
    return [column.attnum for column in now]


def _face(column: Column) -> tuple[str, int, int]:
    return column.name, column.pg_type.oid, column.typmod


def _search(message: Sequence[Column], now: Relation, known: SourceColumns | None) -> list[int] | None:
    names: dict[int, set[str]] = {column.attnum: {column.name} for column in now.columns}
    for attnum, column in ({} if known is None else known.columns).items():
        names.setdefault(attnum, set()).update(column.names)
    live = {column.attnum for column in now.columns}
    texts = [column.name for column in message]
    ways = _ways(texts, names, live)
    if not ways:
        # A name that nobody remembers: any number may have had it, the other names tell which.
        everything = {number: names.get(number, set()) for number in range(1, max([now.attributes, *names]) + 1)}
        remembered = set().union(*names.values())
        ways = _ways([text if text in remembered else None for text in texts], everything, live)
        ways = ways or _ways([None] * len(texts), everything, live)
    return ways[0] if len(ways) == 1 else None


def _ways(wanted: Sequence[str | None], names: Mapping[int, set[str]], live: set[int]) -> list[list[int]]:
    """Return up to two ways to number columns: ascending, by name where one is given, no live one passed over."""
    numbers = sorted(names)
    found: list[list[int]] = []
    steps = 0
    waiting: list[tuple[list[int], int]] = [([], 0)]
    while waiting and len(found) < 2:
        taken, start = waiting.pop()
        if len(taken) == len(wanted):
            found.append(taken)
            continue
        name = wanted[len(taken)]
        for index in range(start, len(numbers)):
            attnum = numbers[index]
            if name is None or name in names[attnum]:
                waiting.append(([*taken, attnum], index + 1))
            if attnum in live:
                break
        steps += 1
        if steps > _MOST_STEPS:
            return [[], []]
    return found
