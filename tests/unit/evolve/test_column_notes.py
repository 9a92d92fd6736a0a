"""Notes of columns come back as they were, and sources that are alike share what is alike."""

from __future__ import annotations

import dataclasses
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from kuvasz.errors import LakeError
from kuvasz.evolve import column_notes, known
from kuvasz.evolve.known import KnownColumn, SourceColumns
from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import PgType, Seen, Uniqueness
from kuvasz.typemap import BUILTIN
from tests.support import earlier_notes
from tests.support.source_table import INT, NUMERIC, TEXT, SourceTable, numeric

OIDS = st.sampled_from([0, 23, 25, 1700, 9999, 10000, 16384, 16401, 4294967295])
NUMBERS = st.integers(0, 2**32 - 1)
LSNS = st.integers(0, 2**64 - 1)
NAMES = st.text(min_size=1, max_size=8)
VERSIONS = st.sampled_from([0, 742, 742, 742, 981]) | NUMBERS


@st.composite
def columns_of(draw: st.DrawFn) -> dict[int, KnownColumn]:
    numbers = draw(st.lists(st.integers(1, 60), unique=True, max_size=8))
    names = draw(st.lists(NAMES, unique=True, min_size=len(numbers), max_size=len(numbers)))
    return {
        number: KnownColumn(
            number=number,
            names=(*draw(st.lists(NAMES, max_size=2)), name),
            type_oid=draw(OIDS),
            typmod=draw(st.integers(-1, 2**31 - 1)),
            version=draw(VERSIONS),
            facts=draw(st.sampled_from([(), ("",), ("a1b2c3d4",), ("a1b2c3d4", "+,;"), ("é", "")])),
            field=draw(st.integers(0, 99)),
            is_live=draw(st.booleans()),
            left=tuple(draw(st.lists(st.integers(1, 99), max_size=2))),
            asked=draw(st.sampled_from(["", "string", "decimal(9,2)"])),
            missing=draw(st.sampled_from(["", None, "deadbeef"])),
            default_of=draw(st.integers(0, 3)),
        )
        for number, name in zip(numbers, names, strict=True)
    }


FACES = st.builds(SeenColumn, NAMES, OIDS, st.integers(-1, 99), VERSIONS, st.booleans())


@st.composite
def sights_of(draw: st.DrawFn, columns: dict[int, KnownColumn], file: int, attributes: int) -> Sight:
    now = {
        number: SeenColumn(one.name, one.type_oid, one.typmod, one.version, True)
        for number, one in columns.items() if one.is_live
    }  # fmt: skip
    other = {number: draw(FACES) for number in draw(st.lists(st.integers(1, 60), unique=True, max_size=5))}
    return Sight(
        seen=Seen(lsn=draw(LSNS), until=draw(LSNS), running=frozenset(draw(st.lists(NUMBERS, max_size=3)))),
        columns=draw(st.sampled_from([now, now, other, now | other])),
        file=draw(st.sampled_from([file, 0, 7])),
        attributes=draw(st.sampled_from([attributes, 0, 7])),
        list_version=draw(st.sampled_from([0, 742])),
    )


@st.composite
def notes(draw: st.DrawFn) -> SourceColumns:
    columns, oid = draw(columns_of()), draw(NUMBERS)
    file, attributes = draw(st.sampled_from([0, oid, 7])), draw(st.integers(0, 60))
    return SourceColumns(
        oid=oid, columns=columns, file=file, attributes=attributes, leaf_files=draw(st.sampled_from([0, 2**60])),
        uniqueness=draw(st.builds(Uniqueness, NUMBERS, NUMBERS, NUMBERS) | st.just(Uniqueness())),
        reads=draw(st.dictionaries(NAMES, st.integers(1, 60), max_size=2)),
        expressions=draw(st.sampled_from(["", "0123456789abcdef"])),
        sights=tuple(draw(st.lists(sights_of(columns, file, attributes), max_size=3))),
    )  # fmt: skip


def parsed(properties: dict[str, str]) -> dict[str, SourceColumns]:
    return column_notes.parse(properties, "shop.items")


@hypothesis.given(st.lists(notes(), min_size=1, max_size=3))
def test_notes_of_all_kinds_come_back(found: list[SourceColumns]) -> None:
    sources = {f"s{number}": one for number, one in enumerate(found)}
    properties = {"other": "x"}
    for source, one in sources.items():
        properties |= column_notes.render(source, one)
    assert parsed(properties) == sources
    assert column_notes.unused(properties) == set()


@hypothesis.given(notes())
def test_notes_of_earlier_versions_are_read_and_come_back(noted: SourceColumns) -> None:
    hypothesis.assume(noted.expressions or not noted.reads)
    old = {column_notes.PREFIX + "eu": earlier_notes.columns(noted)}
    found = parsed(old)["eu"]
    unsaid = {n: dataclasses.replace(one, missing=one.missing or "") for n, one in noted.columns.items()}
    assert found == dataclasses.replace(noted, columns=unsaid)
    assert column_notes.earlier(old) == {"eu"}
    new = column_notes.render("eu", found)
    assert (parsed(new), column_notes.earlier(new)) == ({"eu": found}, set())


def wide(source: int, columns: int = 50) -> SourceColumns:
    """A table of many columns with an enum, as one database of many like ones has it."""
    first = 20_000 + 37 * source
    mood = PgType(oid=first, name="mood", schema="public", category="e")
    kinds = [INT, TEXT, NUMERIC, mood, BUILTIN[1184]]
    table = SourceTable(*((f"column_{number}", kinds[number % 5]) for number in range(columns)), key=("column_0",))
    table.oid = table.file = first + 4
    table.uniqueness = Uniqueness(first + 8, first + 7, first + 7)
    facts = tuple(sorted(f"{source * 7 + label:08x}" for label in range(3)))
    for number, column in table.live.items():
        fine = {"facts": facts} if column.pg_type is mood else {}
        more = {"typmod": numeric(12, 2)} if column.pg_type is NUMERIC else {}
        table.live[number] = dataclasses.replace(column, **fine, **more)
    table.versions = dict.fromkeys(table.live, 700 + source)
    table.lsn = (source << 24) + 1_234_567
    relation = dataclasses.replace(
        table.catalog(), seen=Seen(lsn=table.lsn, until=table.lsn + 56, running=frozenset({700 + source}))
    )
    return known.of(relation, {number: number for number in table.live})


def test_two_hundred_sources_that_are_alike_have_one_shape_and_few_bytes_each() -> None:
    sources = {f"shop_{number:04}": wide(number) for number in range(200)}
    properties: dict[str, str] = {}
    for source, one in sources.items():
        properties |= column_notes.render(source, one)
    (shape,) = {name for name in properties if name.startswith(column_notes.SHAPE_PREFIX)}
    assert len(properties[shape]) < 2000
    texts = [text for name, text in properties.items() if name != shape]
    assert len(texts) == 200
    assert max(map(len, texts)) <= 100
    assert max(len(earlier_notes.columns(one)) for one in sources.values()) > 8000, "what each of them was"
    found = parsed(properties)
    assert found == sources
    assert found["shop_0001"].reads is found["shop_0002"].reads, "what is alike is there once"


def test_a_renamed_added_or_dropped_column_of_one_source_makes_another_shape() -> None:
    sources = {name: wide(number, 5) for number, name in enumerate(("eu", "us", "ap"))}
    table = SourceTable()
    before = known.of(table.catalog(), {1: 1, 2: 2, 3: 3})
    seen = set()
    for change in (lambda: table.alter(2, name="m"), lambda: table.add("x"), lambda: table.drop(3), lambda: None):
        change()
        table.lsn += 10
        before = known.of(table.catalog(), {1: 1, 2: 2, 3: 3, 4: 4}, before)
        properties = {k: text for name, one in (sources | {"us": before}).items()
                      for k, text in column_notes.render(name, one).items()}  # fmt: skip
        seen |= column_notes.named(properties)
        assert len(column_notes.named(properties)) == 2
        assert parsed(properties) == sources | {"us": before}
    assert len(seen) == 4, "one of the others, and one a change"


def test_a_shape_that_no_note_names_is_not_used() -> None:
    properties = column_notes.render("eu", wide(1)) | column_notes.render("us", wide(2, 4))
    (mine,) = column_notes.named({k: text for k, text in properties.items() if not k.endswith(".us")})
    assert column_notes.unused(properties) == set()
    del properties[column_notes.PREFIX + "eu"]
    assert column_notes.unused(properties) == {mine}


def test_a_shape_that_is_gone_or_another_one_is_told() -> None:
    properties = column_notes.render("eu", wide(1))
    (shape,) = (name for name in properties if name.startswith(column_notes.SHAPE_PREFIX))
    with pytest.raises(LakeError, match=f"{shape} is not there, and kuvasz.columns.eu rests on it") as caught:
        parsed({column_notes.PREFIX + "eu": properties[column_notes.PREFIX + "eu"]})
    assert (
        caught.value.hint == f"restore {shape} from an earlier metadata file of the table, or drop kuvasz.columns.eu"
    )
    told = json.loads(properties[shape])
    told["attributes"] += 1
    with pytest.raises(LakeError, match=f"{shape} was changed by someone"):
        parsed(properties | {shape: json.dumps(told)})


@pytest.mark.parametrize("own", ["", "x", "1;;;;3*2;x", "1;;;;4*2", "1;;;;4*9999999999999", "1;;;;4*3;;;0/0,,,,,,9",
                                 "1;;;;4*3;;;x", "1;;;1,2,3,4;4*3", "1;;;;4*3;;;0/0,,,,,,-1,4"])  # fmt: skip
def test_a_note_that_does_not_fit_its_shape_is_told(own: str) -> None:
    properties = column_notes.render("eu", known.of(SourceTable().catalog(), {}))
    digest, _, _ = properties[column_notes.PREFIX + "eu"].partition(";")
    with pytest.raises(LakeError, match=r"kuvasz\.columns\.eu does not describe columns"):
        parsed(properties | {column_notes.PREFIX + "eu": f"{digest};{own}"})
