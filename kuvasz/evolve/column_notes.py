"""What is known of the columns of a lake table's sources, as table properties in few bytes. Pure.

Metadata is written whole with every commit, and tables of a fleet are alike. So what is alike stands in one property
``kuvasz.shape.<digest>`` for all sources, as JSON: names, numbers, types and fields of the columns, what expressions
read, and the columns of looks that differ from those of now. ``kuvasz.columns.<source>`` names it, and has what is
the source's own, which are numbers that its server gave:

    digest; OID; file; leaf files; constraint,index,file of the key; versions; types; facts; look; look; …

A version is written once for the columns that follow one another with it (``742*50``). Types that no server comes
with are numbered in the shape, from -1 down, and their OIDs are here, as is what they rest on. A look is
``LSN,until,running,file,attributes,list,columns,versions``, `until` as a distance. What is empty is as it is now: the
file of now, the columns of now. What is empty at the end is left out. `kuvasz notes` shows what it says.

A shape that somebody changed, or that is gone, is no guess at another one: it is told. Earlier versions of kuvasz
wrote one JSON object a source (`kuvasz.evolve.earlier_notes`), which is read, and written anew at the next start.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from kuvasz import lsn
from kuvasz.errors import LakeError, place_of
from kuvasz.evolve import earlier_notes
from kuvasz.evolve.known import KnownColumn, SourceColumns, as_seen
from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import NOTHING, UNPROVED, Seen, Uniqueness

PREFIX = "kuvasz.columns."

SHAPE_PREFIX = "kuvasz.shape."

#: Digits of a shape's digest: 48 bits.
_DIGITS = 12

#: OIDs below are the same at every server of a version (manual, section 68.2.2).
_FIRST_GIVEN = 10000

#: What a damaged note may raise while it is read.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError)

#: Number, name, type, typmod, and whether messages have it; the version is the source's own.
_Face: TypeAlias = tuple[int, str, int, int, bool]


# To write


def render(source: str, columns: SourceColumns) -> dict[str, str]:
    """Return the properties that say what is known of a source's columns: its note, and the shape that it names."""
    own, shape = _Writer(columns).texts()
    digest = _digest(shape)
    return {PREFIX + source: f"{digest};{own}".rstrip(";"), SHAPE_PREFIX + digest: shape}


class _Writer:
    """Tells what is alike from what is a source's own. Use once."""

    def __init__(self, columns: SourceColumns) -> None:
        self._columns = columns
        self._sorted = [columns.columns[number] for number in sorted(columns.columns)]
        self._types: dict[int, int] = {}  #: OID -> its number in the shape
        self._facts: dict[tuple[str, ...], int] = {}  #: what a type rests on -> the same
        self._faces: dict[tuple[_Face, ...], int] = {}  #: columns of a look -> the same, from 1 up

    def texts(self) -> tuple[str, str]:
        """Return what is the source's own, and the shape."""
        known = self._columns
        columns = [self._column(column) for column in self._sorted]
        looks = [self._look(sight) for sight in known.sights]
        shape: dict[str, Any] = {"attributes": known.attributes, "columns": columns}
        if known.reads or known.expressions:
            shape |= {"reads": dict(sorted(known.reads.items())), "expressions": known.expressions}
        if self._faces:
            shape["looks"] = list(self._faces)
        own = (
            str(known.oid),
            "" if known.file == known.oid else str(known.file),
            str(known.leaf_files or ""),
            ",".join(map(str, known.uniqueness)) if any(known.uniqueness) else "",
            _runs(column.version for column in self._sorted),
            ",".join(map(str, self._types)),
            ",".join("+".join(quote(fact, safe="") for fact in facts) for facts in self._facts),
            *looks,
        )
        return ";".join(own), json.dumps(shape, separators=(",", ":"))

    def _type(self, oid: int) -> int:
        """Return what the shape calls a type."""
        return oid if oid < _FIRST_GIVEN else self._types.setdefault(oid, -1 - len(self._types))

    def _column(self, column: KnownColumn) -> list[Any]:
        more: dict[str, Any] = {}
        if len(column.names) > 1:
            more["earlier"] = column.names[:-1]
        if column.facts:
            more["facts"] = self._facts.setdefault(column.facts, len(self._facts))
        if column.missing != "":
            more["missing"] = column.missing
        if column.left:
            more["left"] = column.left
        if column.asked:
            more["asked"] = column.asked
        if column.default_of:
            more["default"] = column.default_of
        if not column.is_live:
            more["dropped"] = True
        told = [column.number, column.name, self._type(column.type_oid), column.typmod, column.field]
        return [*told, more] if more else told

    def _look(self, sight: Sight) -> str:
        known, seen = self._columns, sight.seen
        is_of_now = sight.columns == as_seen(self._sorted)
        numbers = sorted(sight.columns)
        faces = tuple(self._face(number, sight.columns[number]) for number in numbers)
        place = 0 if is_of_now else self._faces.setdefault(faces, 1 + len(self._faces))
        facts = (
            lsn.render(seen.lsn),
            str(seen.until - seen.lsn or ""),
            "+".join(map(str, sorted(seen.running))),
            "" if sight.file == known.file else str(sight.file),
            "" if sight.attributes == known.attributes else str(sight.attributes),
            str(sight.list_version or ""),
            str(place or ""),
            "" if is_of_now else _runs((sight.columns[number].version for number in numbers), "+"),
        )
        return ",".join(facts).rstrip(",")

    def _face(self, number: int, face: SeenColumn) -> _Face:
        return number, face.name, self._type(face.type_oid), face.typmod, face.is_sent


def _runs(numbers: Iterable[int], between: str = ",") -> str:
    """Return numbers, each with how often it follows on itself."""
    runs = [(number, sum(1 for _ in same)) for number, same in itertools.groupby(numbers)]
    return between.join(str(number) if count == 1 else f"{number}*{count}" for number, count in runs)


def _digest(shape: str) -> str:
    return hashlib.sha256(shape.encode()).hexdigest()[:_DIGITS]


# To read


def parse(properties: Mapping[str, str], table: str) -> dict[str, SourceColumns]:
    """Return source -> columns from a table's properties; sources that are alike share what is alike.

    Raises:
        LakeError: A property was damaged by someone, or is gone.
    """
    return dict(_Reader(properties, table).all())


def noted(properties: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the properties that say what is known of one source's columns, as `render` does."""
    text = properties[PREFIX + source]
    shape = SHAPE_PREFIX + text.partition(";")[0]
    names = (PREFIX + source,) if is_earlier(text) else (PREFIX + source, shape)
    return {name: properties[name] for name in names}


def oid_of(text: str) -> int:
    """Return the OID of the table that a note is about, which is not of an earlier version."""
    return int(text.split(";", 2)[1])


class _Reader:
    """Reads the notes of one table, each shape once."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table
        self._shapes: dict[str, _Shape] = {}

    def all(self) -> Iterator[tuple[str, SourceColumns]]:
        """Yield source and columns."""
        for name, text in self._properties.items():
            if name.startswith(PREFIX):
                yield sys.intern(name.removeprefix(PREFIX)), self._note(name, text)  # of all tables there is one

    def _note(self, name: str, text: str) -> SourceColumns:
        try:
            if is_earlier(text):
                return earlier_notes.parse(text)
            digest, *own = text.split(";")
            return self._shape(digest, name).columns_of(own)
        except _DAMAGE as error:
            message = f"{place_of(table=self._table)}: property {name} does not describe columns: {text[:120]!r}"
            raise LakeError(message, hint="restore the property, or drop it") from error

    def _shape(self, digest: str, of: str) -> _Shape:
        if digest not in self._shapes:
            self._shapes[digest] = _Shape(self._text(digest, of))
        return self._shapes[digest]

    def _text(self, digest: str, of: str) -> str:
        """Return a shape as it was written.

        Raises:
            LakeError: It is not there, or is another one.
            ValueError: What was asked for is no digest.
        """
        if len(digest) != _DIGITS:
            raise ValueError(digest)
        name = SHAPE_PREFIX + digest
        text = self._properties.get(name)
        if text is not None and _digest(text) == digest:
            return text
        what = "is not there" if text is None else "was changed by someone"
        message = f"{place_of(table=self._table)}: property {name} {what}, and {of} rests on it"
        raise LakeError(message, hint=f"restore {name} from an earlier metadata file of the table, or drop {of}")


class _Shape:
    """What is alike for all sources whose notes name it."""

    def __init__(self, text: str) -> None:
        facts = json.loads(text)
        self._attributes = int(facts["attributes"])
        self._columns = [_column(*told) for told in facts["columns"]]
        self._faces = [[_face(*told) for told in faces] for faces in facts.get("looks", ())]
        self._reads = {str(name): int(number) for name, number in facts.get("reads", {}).items()}
        self._expressions = str(facts.get("expressions", ""))
        #: versions, types and facts -> columns, and how a look shows them
        self._known: dict[tuple[str, ...], tuple[dict[int, KnownColumn], dict[int, SeenColumn]]] = {}

    def columns_of(self, own: Sequence[str]) -> SourceColumns:
        """Return the columns of a source, of which this is its own."""
        oid, file, leaf_files, key, versions, types, facts = (*own[:7], *[""] * (7 - len(own)))
        oids = [int(one) for one in types.split(",")] if types else []
        made = self._known.get((versions, types, facts))
        if made is None:
            columns = self._make(versions, oids, facts)
            made = self._known[versions, types, facts] = columns, as_seen(columns.values())
        columns, now = made
        known = SourceColumns(
            oid=int(oid), file=int(file or oid), attributes=self._attributes, columns=columns,
            leaf_files=int(leaf_files or 0),
            uniqueness=Uniqueness(*map(int, key.split(","))) if key else UNPROVED,
            reads=self._reads, expressions=self._expressions,
        )  # fmt: skip
        sights = tuple(self._sight(text, known, now, oids) for text in own[7:])
        return dataclasses.replace(known, sights=sights) if sights else known

    def _make(self, versions: str, oids: Sequence[int], facts: str) -> dict[int, KnownColumn]:
        groups = [tuple(map(unquote, group.split("+"))) for group in facts.split(",")]
        made = zip(self._columns, _spread(versions, len(self._columns)), strict=True)
        return {
            told["number"]: KnownColumn(
                **told, version=version, type_oid=_oid(kind, oids), facts=() if place is None else groups[place]
            )
            for (told, kind, place), version in made
        }

    def _sight(self, text: str, known: SourceColumns, now: Mapping[int, SeenColumn], oids: Sequence[int]) -> Sight:
        parts = text.split(",")
        at, until, running, file, attributes, list_version, place, versions = (*parts, *[""] * (8 - len(parts)))
        begin = lsn.parse(at)
        return Sight(
            seen=Seen(
                lsn=begin, until=begin + int(until or 0),
                running=frozenset(map(int, running.split("+"))) if running else NOTHING,
            ),
            columns=self._seen(int(place), versions, oids) if place else now,
            file=int(file or known.file), attributes=int(attributes or known.attributes),
            list_version=int(list_version or 0),
        )  # fmt: skip

    def _seen(self, place: int, versions: str, oids: Sequence[int]) -> dict[int, SeenColumn]:
        if place < 1:
            raise ValueError(place)
        faces = self._faces[place - 1]
        return {
            number: SeenColumn(name, _oid(kind, oids), typmod, version, is_sent)
            for (number, name, kind, typmod, is_sent), version in zip(
                faces, _spread(versions, len(faces), "+"), strict=True
            )
        }


def _column(
    number: Any, name: Any, kind: Any, typmod: Any, field: Any, more: Mapping[str, Any] | None = None  # noqa: ANN401 (JSON)
) -> tuple[dict[str, Any], int, int | None]:  # fmt: skip
    """Return what a column is for all sources, what the shape calls its type, and which of the facts are its."""
    more = {} if more is None else more
    missing, place = more.get("missing", ""), more.get("facts")
    told = {
        "number": int(number), "names": (*map(str, more.get("earlier", ())), str(name)), "typmod": int(typmod),
        "field": int(field), "is_live": "dropped" not in more, "left": tuple(map(int, more.get("left", ()))),
        "asked": str(more.get("asked", "")), "missing": None if missing is None else str(missing),
        "default_of": int(more.get("default", 0)),
    }  # fmt: skip
    return told, int(kind), None if place is None else int(place)


def _face(number: Any, name: Any, kind: Any, typmod: Any, is_sent: Any) -> _Face:  # noqa: ANN401 (JSON)
    return int(number), str(name), int(kind), int(typmod), bool(is_sent)


def _oid(kind: int, oids: Sequence[int]) -> int:
    """Return the OID at this source of what the shape calls a type."""
    return kind if kind >= 0 else oids[-1 - kind]


def _spread(runs: str, count: int, between: str = ",") -> list[int]:
    """Return so many numbers that `_runs` was given.

    Raises:
        ValueError: They are not so many.
    """
    found: list[int] = []
    for run in runs.split(between) if runs else ():
        number, _, times = run.partition("*")
        many = int(times or 1)
        if not 0 < many <= count - len(found):
            raise ValueError(runs[:120])
        found += [int(number)] * many
    if len(found) != count:
        raise ValueError(runs[:120])
    return found


# What there is


def is_earlier(text: str) -> bool:
    """Whether a note is of the form that earlier versions of kuvasz wrote."""
    return text.startswith("{")


def earlier(properties: Mapping[str, str]) -> set[str]:
    """Return the sources whose notes are of that form."""
    return {name.removeprefix(PREFIX) for name, text in properties.items()
            if name.startswith(PREFIX) and is_earlier(text)}  # fmt: skip


def named(properties: Mapping[str, str]) -> set[str]:
    """Return the names of the properties with shapes that notes rest on."""
    return {SHAPE_PREFIX + text.partition(";")[0] for name, text in properties.items() if name.startswith(PREFIX)}


def unused(properties: Mapping[str, str]) -> set[str]:
    """Return the names of the properties with shapes that no note rests on."""
    return {name for name in properties if name.startswith(SHAPE_PREFIX)} - named(properties)


__all__ = ["PREFIX", "SHAPE_PREFIX", "earlier", "is_earlier", "named", "noted", "oid_of", "parse", "render", "unused"]
