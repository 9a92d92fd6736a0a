"""Which columns of the catalog a Relation message means: its columns have names and types, but no numbers. Pure.

A message lists the columns that were there at its time in the order of their numbers, and new columns are always at
the end. Looks at the catalog before and after that time say which columns those can be:

- one that both looks show was there, with its name and type of then if its row is the same in both (xmin);
- one that only the earlier look shows may be there still;
- one that only the later look shows is there if any column of a higher number is, for they came in that order;
- one that neither shows may have come and gone;
- while no row was rewritten (the table's file is the same), values keep what type they are of.

Names that no look proves count for nothing: any column may have had any name meanwhile. What leaves more than one way
is not guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import Column, Relation

#: Steps of the search before the answer is "cannot be told"; a table without dropped columns takes one a column.
_MOST_STEPS = 40_000

#: Types whose values PostgreSQL never takes for one another's without writing them anew; of others nothing is said.
_KINDS = {
    16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 26: "int4", 25: "text", 1042: "text", 1043: "text",
    142: "text", 114: "json", 3802: "jsonb", 700: "float4", 701: "float8", 1700: "numeric", 1082: "date",
    1083: "time", 1266: "timetz", 1114: "timestamp", 1184: "timestamp", 1186: "interval", 2950: "uuid",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """When a message came: behind everything that committed before `from_lsn`, and before all from `to_lsn` on."""

    from_lsn: int
    to_lsn: int
    xid: int = 0  #: the transaction's, if what it did itself counts

    @classmethod
    def of(cls, commit_lsn: int, xid: int) -> Time:
        """Return that of a message in a transaction."""
        return cls(from_lsn=commit_lsn, to_lsn=commit_lsn + 1, xid=xid)

    @classmethod
    def at(cls, lsn: int) -> Time:
        """Return the time when everything that committed before an LSN was there, and nothing else."""
        return cls(from_lsn=lsn, to_lsn=lsn)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a message means."""

    relation: Relation | None = None  #: with its columns numbered, if there is one way
    likely: Relation | None = None  #: with more than one: the one that names, types and xids speak for, if they do
    is_open: bool = False  #: there is more than one way


def number(message: Relation, sights: Sequence[Sight], time: Time, grids: Iterable[int] = ()) -> Answer:
    """Return what a message's columns are.

    Args:
        message: As the stream describes the table.
        sights: Looks at the catalog, oldest first, one of them not before the message's time.
        time: The message's.
        grids: Numbers of columns that are declared as arrays of several dimensions.
    """
    before, after = _around(sights, time)
    if after is None:
        return Answer()
    places = _places(before, after)
    ways = _ways(message.columns, places)
    if len(ways) == 1:
        return Answer(relation=_numbered(message, ways[0], grids))
    likely = _likely(message, ways, before, after, time) if ways else None
    return Answer(is_open=bool(ways), likely=None if likely is None else _numbered(message, likely, grids))


def _around(sights: Sequence[Sight], time: Time) -> tuple[Sight | None, Sight | None]:
    """Return the last look before a time, and the first one not before it."""
    before = [one for one in sights if one.seen.until <= time.from_lsn]
    after = [one for one in sights if one.shows(time.to_lsn - 1, time.xid)]
    return (before[-1] if before else None), (after[0] if after else None)


def _numbered(message: Relation, numbers: Sequence[int], grids: Iterable[int]) -> Relation:
    wide = set(grids)
    columns = tuple(
        dataclasses.replace(column, attnum=attnum, is_grid=attnum in wide)
        for column, attnum in zip(message.columns, numbers, strict=True)
    )
    return dataclasses.replace(message, columns=columns)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column that a message may have."""

    number: int
    is_there: bool  #: and must have
    is_late: bool  #: and must have, if it has one of a higher number
    face: SeenColumn | None  #: its name and type at the time, if they are proved
    kinds: frozenset[str]  #: what its values may be of; empty: anything

    def fits(self, column: Column) -> bool:
        """Whether a message's column may be it."""
        if self.face is not None:
            return self.face[:3] == (column.name, column.pg_type.oid, column.typmod)
        kind = _KINDS.get(column.pg_type.oid)
        return not self.kinds or kind is None or kind in self.kinds


def _places(before: Sight | None, after: Sight) -> list[_Place]:
    known = 0 if before is None else before.attributes
    is_rewritten = before is None or 0 in (before.file, after.file) or before.file != after.file
    is_one_list = before is None or before.list_version == after.list_version
    found = []
    for number in range(1, max([after.attributes, *after.columns]) + 1):
        old, new = None if before is None else before.columns.get(number), after.columns.get(number)
        if old is None and number <= known:
            continue  # it was gone
        is_same = old is not None and new is not None and old[:4] == new[:4] and old.version != 0
        seen = [face for face in (old, new) if face is not None]
        # A column is in the messages if the look says so and nobody changed that since.
        may_be_sent = not seen or any(face.is_sent for face in seen) or not is_one_list
        if not may_be_sent and (is_same or old is None or new is None):
            continue
        is_sent = is_one_list and all(face.is_sent for face in seen)
        kinds = frozenset(kind for face in seen if not is_rewritten and (kind := _KINDS.get(face.type_oid)))
        found.append(
            _Place(
                number=number,
                is_there=is_sent and old is not None and new is not None,
                is_late=is_sent and old is None and new is not None,
                face=old if is_same else None,
                kinds=kinds if len(kinds) == 1 else frozenset(),
            )
        )
    return found


def _ways(columns: Sequence[Column], places: Sequence[_Place]) -> list[list[int]]:
    """Return the ways to number columns, none that must be there passed over; empty ones if there are too many."""
    found: list[list[int]] = []
    steps = 0
    waiting: list[tuple[list[int], int]] = [([], 0)]
    needed = _needed(places)
    while waiting:
        taken, start = waiting.pop()
        left = len(columns) - len(taken)
        if not left:
            if not needed[start]:
                found.append(taken)
            continue
        if steps > _MOST_STEPS or len(found) >= _MOST_WAYS:
            return [[], []]
        for index in range(start, len(places) - left + 1):
            steps += 1
            place = places[index]
            if place.fits(columns[len(taken)]) and needed[index] <= left:
                waiting.append(([*taken, place.number], index + 1))
            if place.is_there or place.is_late:
                break
    return found


#: Ways that are looked at to find the likely one.
_MOST_WAYS = 16


def _needed(places: Sequence[_Place]) -> list[int]:
    """Return, for each place and behind the last, how many of it and the later ones must be there."""
    counts = [0]
    for place in reversed(places):
        counts.append(counts[-1] + place.is_there)
    return counts[::-1]


def _likely(
    message: Relation, ways: Sequence[Sequence[int]], before: Sight | None, after: Sight, time: Time
) -> list[int] | None:
    """Return the one way that agrees with all names and types that looks have shown, and with the order of xids.

    Nothing speaks for a way where the transaction's xid is not known. Names speak for nothing where a column may have
    been put in place of another: of two that are both gone by now, one may have been dropped, and the other have got
    its name. Neither do they where one may have come and gone between the looks.
    """
    good = [way for way in ways if way and time.xid and _agrees(message, way, before, after, time)]
    if len(good) != 1 or any(_is_replacing(way, good[0], before, after) for way in ways):
        return None
    return list(good[0])


def _is_replacing(way: Sequence[int], likely: Sequence[int], before: Sight | None, after: Sight) -> bool:
    """Whether another way has, in place of a likely column, one that no look shows, or one that is gone like it."""
    if before is None:
        return False
    seen = before.columns.keys() | after.columns.keys()
    gone = before.columns.keys() - after.columns.keys()
    return any(
        number != other and (number not in seen or {number, other} <= gone)
        for number, other in zip(way, likely, strict=True)
    )


def _agrees(message: Relation, way: Sequence[int], before: Sight | None, after: Sight, time: Time) -> bool:
    taken = set(way)
    for column, number in zip(message.columns, way, strict=True):
        old, new = None if before is None else before.columns.get(number), after.columns.get(number)
        face = column.name, column.pg_type.oid, column.typmod
        if all(seen is None or seen[:3] != face for seen in (old, new)):
            return False
        if old is None and new is not None and _is_younger(new.version, time.xid):
            return False
    known = 0 if before is None else before.attributes
    late = [face for number, face in after.columns.items() if number > known and number not in taken and face.is_sent]
    # A column of the transaction itself came before or after its rows: its messages may lack or have it.
    return all(face.version == time.xid or _is_younger(face.version, time.xid) for face in late)


def _is_younger(xid: int, than: int) -> bool:
    """Whether a transaction began to write after another one; xids go round (manual, section 25.1.5)."""
    return bool(than) and 0 < (xid - than) % (1 << 32) < (1 << 31)


__all__ = ["Answer", "Time", "number"]
