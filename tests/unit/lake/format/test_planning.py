"""What a lake table does about a changed source table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import SchemaError
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.format import planning
from kuvasz.lake.format.evolution import Evolution
from kuvasz.lake.format.planning import OtherSources, names_by_field, plan, strays
from kuvasz.lake.format.schema import Field, LakeSchema, typed, wanted
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, Step, WidenField
from kuvasz.model import LONG, LakeType, TableType
from kuvasz.ports import Target
from kuvasz.typemap import BUILTIN
from tests.support.examples import examples
from tests.support.source_table import BIGINT, INT, NUMERIC, REAL, TEXT, SourceTable, numeric

TARGET = Target(name="shop.items")


class LakeTable:
    """A lake's schema that takes steps as a catalog does."""

    def __init__(self, table: SourceTable, *, takes_defaults: bool = False) -> None:
        self.takes_defaults = takes_defaults
        self.fields = list(wanted(TARGET, table.catalog()))
        self.key = table.key
        self.known: dict[str, SourceColumns] = {}
        self.follow(table)

    @property
    def schema(self) -> LakeSchema:
        return LakeSchema(schema_id=0, fields=tuple(self.fields))

    def plan(self, table: SourceTable, source: str = "eu", target: Target = TARGET) -> Evolution:
        others = {field for name, columns in self.known.items() if name != source
                  for column in columns.live.values() for field in [column.field]}  # fmt: skip
        kept = {field for name, columns in self.known.items() if name != source
                for column in columns.columns.values() for field in column.left}  # fmt: skip
        kept |= {column.field for name, columns in self.known.items() if name != source
                 for column in columns.columns.values() if not column.is_live}  # fmt: skip
        names: dict[str, set[int]] = {}
        for name, columns in self.known.items():
            for column in columns.live.values() if name != source else ():
                names.setdefault(column.name, set()).add(column.field)
        return plan(
            target, self.schema, self.key, typed(target, table.catalog()), self.known.get(source),
            OtherSources(
                fields=frozenset(others), kept=frozenset(kept),
                names={name: frozenset(fields) for name, fields in names.items()},
            ), "place", takes_defaults=self.takes_defaults,
        )  # fmt: skip

    def follow(self, table: SourceTable, source: str = "eu", target: Target = TARGET) -> Evolution:
        planned = self.plan(table, source, target)
        for step in planned.steps:
            self.take(step)
            names = [field.name for field in self.fields]
            assert len(set(names)) == len(names), (step, names)
        self.key = planned.key
        self.known[source] = planned.columns(typed(target, table.catalog()), self.schema, self.known.get(source))
        assert self.strays(source) == {}, "it is not taken for someone else's doing"
        return planned

    def strays(self, source: str) -> dict[str, str | None]:
        names: dict[int, set[str]] = {}
        for field, name in (pair for known in self.known.values() for pair in names_by_field(known)):
            names.setdefault(field, set()).add(name)
        return strays(self.schema, names, self.known.get(source))

    def take(self, step: Step) -> None:
        match step:
            case AddField():
                number = 1 + max(field.field_id for field in self.fields)
                self.fields.append(dataclasses.replace(step.field, field_id=number))
            case RenameField():
                self._replace(step.name, name=step.to)
            case WidenField():
                self._replace(step.name, type=step.type)
            case RelaxFields():
                for name in step.names:
                    self._replace(name, required=False)

    def _replace(self, of: str, **facts: object) -> None:
        (place,) = [place for place, field in enumerate(self.fields) if field.name == of]
        self.fields[place] = dataclasses.replace(self.fields[place], **facts)

    def field_of(self, table: SourceTable, name: str, source: str = "eu") -> Field:
        number = self.known[source].columns[table.number(name)].field
        return next(field for field in self.fields if field.field_id == number)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]


def test_nothing_happened() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    planned = lake.follow(table)
    assert (planned.steps, planned.told, planned.why_copy) == ((), (), "")


@pytest.mark.parametrize(
    ("make", "names", "is_copied"),
    [
        (lambda t: t.add("c"), ["id", "n", "name", "c"], False),
        (lambda t: t.add("c", default="{1}"), ["id", "n", "name", "c"], True),
        (lambda t: t.drop(2), ["id", "n", "name"], False),
        (lambda t: t.alter(2, name="m"), ["id", "m", "name"], False),
        (lambda t: t.alter(1, name="number"), ["number", "n", "name"], False),
        (lambda t: (t.alter(2, name="x"), t.alter(3, name="n"), t.alter(2, name="name")), ["id", "name", "n"], False),
        (lambda t: (t.drop(2), t.add("n", TEXT)), ["id", "n__old", "name", "n"], True),
        (lambda t: (t.drop(2), t.alter(3, name="n")), ["id", "n__old", "n"], False),
        (lambda t: (t.alter(2, pg_type=BIGINT), t.rewrite()), ["id", "n", "name"], True),
        (lambda t: (t.alter(2, pg_type=TEXT), t.rewrite()), ["id", "n__old", "name", "n"], True),
        (lambda t: (t.alter(3, pg_type=INT), t.rewrite()), ["id", "n", "name__old", "name"], True),
        (lambda t: (t.alter(1, pg_type=TEXT), t.rewrite()), ["id__old", "n", "name", "id"], True),
        (lambda t: (t.alter(2, name="m", pg_type=TEXT), t.rewrite()), ["id", "m__old", "name", "m"], True),
    ],
)
def test_names_after_a_change(make: Callable[[SourceTable], object], names: list[str], is_copied: bool) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    make(table)
    planned = lake.follow(table)
    assert lake.names == names
    assert bool(planned.why_copy) == is_copied
    assert planned.told
    again = lake.follow(table)
    assert (again.steps, again.told, again.why_copy) == ((), (), "")


@pytest.mark.parametrize("make", [lambda t: t.add("_deleted"), lambda t: t.alter(2, name="_pos")])
def test_a_name_by_which_spark_does_not_read_the_table_is_refused(make: Callable[[SourceTable], object]) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    make(table)
    with pytest.raises(SchemaError, match=r"^place: Iceberg has something of its own by the name _"):
        lake.follow(table)


@pytest.mark.parametrize("make", [lambda t: t.add("Name"), lambda t: t.alter(2, name="NAME")])
def test_so_is_one_that_differs_from_another_in_case_only(make: Callable[[SourceTable], object]) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    make(table)
    with pytest.raises(SchemaError, match=r"^place: the columns name and N\w+ differ in case only"):
        lake.follow(table)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda t: t.alter(3, name="Name"), ["id", "n", "Name"]),
        (lambda t: (t.drop(3), t.add("Name")), ["id", "n", "name__old", "Name"]),
        (lambda t: (t.drop(3), t.alter(2, name="NAME")), ["id", "NAME", "name__old"]),
        (lambda t: (t.alter(3, name="x"), t.alter(2, name="NAME")), ["id", "NAME", "x"]),
    ],
)
def test_one_that_is_gone_is_put_aside_for_it(make: Callable[[SourceTable], object], names: list[str]) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    make(table)
    lake.follow(table)
    assert lake.names == names


def test_a_table_that_has_such_a_column_goes_on() -> None:
    table = SourceTable(("id", INT), ("_deleted", INT))
    lake = LakeTable(table)
    table.add("more")
    assert lake.follow(table).told
    assert lake.names == ["id", "_deleted", "more"]


def test_a_field_that_someone_else_renamed_is_told_from_one_that_a_source_did() -> None:
    table, other = SourceTable(), SourceTable()
    lake = LakeTable(table)
    lake.follow(other, "us")
    other.alter(2, name="number")
    other.drop(3)
    lake.follow(other, "us")
    lake.take(RenameField("number", "count"))
    lake.take(RenameField("name", "title"))
    assert lake.strays("eu") == {"n": "count", "name": "title"}
    assert lake.strays("us") == {"number": "count"}
    lake.take(RenameField("count", "n"))  # as a source still calls it
    lake.take(RenameField("title", "name__old"))
    lake.fields = [field for field in lake.fields if field.name != "id"]
    assert lake.strays("eu") == {"id": None}
    assert lake.strays("another") == {}


def test_old_ones_are_counted() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    for _ in range(3):
        table.drop(table.number("n"))
        table.add("n")
        lake.follow(table)
    assert lake.names == ["id", "n__old", "name", "n__old2", "n__old3", "n"]


def test_decimals_widen_in_place_and_change_scale_beside() -> None:
    table = SourceTable(("id", INT), ("price", NUMERIC), ("ratio", REAL))
    table.alter(2, typmod=numeric(8, 2))
    lake = LakeTable(table)
    table.alter(2, typmod=numeric(12, 2))
    assert lake.follow(table).why_copy == ""
    assert (lake.fields[1].type.precision, lake.names) == (12, ["id", "price", "ratio"])
    table.alter(2, typmod=numeric(10, 2))
    table.rewrite()
    assert lake.follow(table).why_copy
    assert (lake.fields[1].type.precision, lake.names) == (12, ["id", "price", "ratio"])
    table.alter(2, typmod=numeric(12, 4))
    table.rewrite()
    lake.follow(table)
    assert lake.names == ["id", "price__old", "ratio", "price"]


def test_another_key() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    table.key = ("name",)
    table.alter(1, is_key=False)
    table.alter(3, is_key=True, is_nullable=False)
    planned = lake.follow(table)
    assert lake.key == ("name",)
    assert planned.why_copy == "the key was changed"
    assert planned.is_change
    assert planned.steps == (RelaxFields(("id",)),)


def test_other_values_of_a_key_are_told_by_what_became_of_the_key() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    table.add("m", default="5")
    table.alter(2, name="n2")
    assert lake.plan(table).why_other_keys == ""
    table.alter(1, name="id2")
    table.rewrite()
    planned = lake.plan(table)
    assert planned.why_other_keys.endswith("the table was rewritten and the column altered")
    assert planned.why_other_keys.startswith("column id2 ")


def test_another_table_is_refused() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    table.oid = 101
    with pytest.raises(SchemaError, match=r"not the table that was copied \(OID 100, now 101\)"):
        lake.plan(table)


def test_what_was_masked_is_not_laid_open_by_a_new_name() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    table.alter(2, name="spare")
    table.alter(3, name="n")
    masked = dataclasses.replace(TARGET, mask={"n": "hmac"})
    with pytest.raises(SchemaError, match="column n was renamed to spare, and the map masks it by its earlier"):
        plan(masked, lake.schema, lake.key, table.catalog(), lake.known["eu"], frozenset(), "place")


def asking(**types: str) -> Target:
    return dataclasses.replace(TARGET, types=types)


def test_a_key_of_another_type_by_the_map_is_no_longer_what_identified_rows() -> None:
    """Versions of a history that are open would never end: the field that their keys are in is another one."""
    table = SourceTable()
    lake, target = LakeTable(table), dataclasses.replace(asking(id="string"), type=TableType.HISTORY)
    assert lake.plan(table, target=target).why_other_keys == "column id was given another type"
    assert lake.plan(table, target=dataclasses.replace(target, types={"n": "string"})).why_other_keys == ""
    numbers = SourceTable(("id", NUMERIC), ("n", INT))
    numbers.alter(1, typmod=numeric(38, 2))
    lake = LakeTable(numbers)
    numbers.alter(1, typmod=numeric(40, 2))  # which writes no row anew
    planned = lake.plan(numbers, target=dataclasses.replace(TARGET, type=TableType.HISTORY))
    assert planned.why_other_keys == "column id was given another type"


@pytest.mark.parametrize(
    ("column", "names"),
    [("n", ["id", "n__old", "name", "n"]), ("id", ["id__old", "n", "name", "id"]), ("name", ["id", "n", "name"])],
)
def test_a_type_of_the_map_is_followed_as_one_of_the_source(column: str, names: list[str]) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    target = asking(**{column: "string"})
    planned = lake.follow(table, target=target)
    assert lake.names == names
    assert bool(planned.why_copy) == (column != "name"), "text is a string anyway"
    assert planned.is_change == (column != "name")
    assert lake.field_of(table, column).type.kind is LakeType.STRING
    assert not planned.has_other_key
    again = lake.follow(table, target=target)
    assert (again.steps, again.told, again.why_copy) == ((), (), "")
    if column != "name":
        back = lake.follow(table)
        assert back.why_copy
        assert lake.field_of(table, column).type.kind is LakeType.INT


def test_the_text_of_another_type_may_be_another() -> None:
    """A timestamptz becomes a timestamp in UTC without a rewrite, but each row's text is another one."""
    table = SourceTable(("id", INT), ("at", BUILTIN[1184]))
    lake = LakeTable(table)
    target = asking(at="string")
    lake.follow(table, target=target)
    table.alter(2, pg_type=BUILTIN[1114])
    assert lake.follow(table, target=target).why_copy
    assert lake.names == ["id", "at__old", "at"]


def test_all_sources_go_to_the_type_of_the_map() -> None:
    tables = {"eu": SourceTable(), "us": SourceTable()}
    lake = LakeTable(tables["eu"])
    lake.follow(tables["us"], "us")
    for source, table in tables.items():
        assert lake.follow(table, source, asking(n="string")).why_copy
        assert lake.field_of(table, "n", source).name == "n"
    assert lake.names == ["id", "n__old", "name", "n"]


def test_decimals_that_were_not_remembered_are_no_change() -> None:
    table = SourceTable(("id", INT), ("n", NUMERIC))
    lake = LakeTable(table)
    target = asking(n="decimal(10,2)")
    lake.follow(table, target=target)
    columns = {number: dataclasses.replace(one, asked="") for number, one in lake.known["eu"].columns.items()}
    lake.known["eu"] = dataclasses.replace(lake.known["eu"], columns=columns)
    planned = lake.follow(table, target=target)
    assert (planned.steps, planned.is_change, planned.why_copy) == ((), False, "")


def test_a_type_does_not_stay_behind_when_its_column_is_renamed() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    lake.follow(table, target=asking(n="string"))
    table.alter(2, name="m")
    with pytest.raises(SchemaError) as caught:
        lake.plan(table, target=asking(n="string"))
    assert str(caught.value) == (
        "place: column n was renamed to m, and the map gives it a type by its earlier name"
        "\nhint: change the name in `types` or `decimals`, and start again"
    )
    planned = lake.follow(table, target=asking(m="string"))
    assert (lake.names, planned.why_copy) == (["id", "n__old", "name", "m"], "")


def test_columns_that_the_map_leaves_out_change_nothing() -> None:
    table = SourceTable()
    without = dataclasses.replace(TARGET, columns=frozenset({"id", "name"}))
    lake = LakeTable(table)
    assert lake.follow(table, target=without).told == ()
    table.alter(2, name="m", pg_type=TEXT)
    table.rewrite()
    table.drop(table.add("x", default="{1}"))
    table.add("y", default="{1}")
    planned = lake.follow(table, target=without)
    assert (planned.steps, planned.told, planned.why_copy) == ((), (), "")
    table.drop(2)
    assert lake.follow(table, target=without).told == ()


def test_a_column_that_is_taken_again_is_copied() -> None:
    table = SourceTable()
    lake = LakeTable(table)
    lake.follow(table, target=dataclasses.replace(TARGET, exclude=frozenset({"n"})))
    planned = lake.follow(table)
    assert planned.why_copy == "column n was left out until now"
    assert lake.names == ["id", "n", "name"]
    assert lake.follow(table).why_copy == ""


def test_what_the_map_leaves_out_is_not_taken_under_another_name() -> None:
    """Another column has the name that the map leaves out, so the entry seems to fit still."""
    table = SourceTable()
    lake, without = LakeTable(table), dataclasses.replace(TARGET, exclude=frozenset({"n"}))
    lake.follow(table, target=without)
    table.alter(2, name="n_before")
    table.add("n")
    with pytest.raises(SchemaError, match="n was renamed to n_before, and the map leaves it out by its earlier"):
        lake.follow(table, target=without)
    planned = lake.follow(table, target=dataclasses.replace(TARGET, exclude=frozenset({"n", "n_before"})))
    assert (planned.steps, planned.told, planned.why_copy) == ((), (), "")


def test_a_new_source_of_other_types_is_refused() -> None:
    lake = LakeTable(SourceTable())
    with pytest.raises(SchemaError, match="column n is string by its type text, but int in the lake"):
        lake.plan(SourceTable(("id", INT), ("n", TEXT)), "us")


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.HISTORY])
def test_a_new_source_of_another_key_is_refused(kind: TableType) -> None:
    """Its rows with the key of another of its rows would be taken for that one's next version."""
    lake, us = LakeTable(SourceTable()), SourceTable()
    us.key = ()
    us.alter(1, is_key=False)
    target = dataclasses.replace(TARGET, type=kind)
    with pytest.raises(SchemaError, match=r"its key is \(\) now, but other sources of shop\.items have \(id\)"):
        lake.plan(us, "us", target)
    lake.plan(us, "us", dataclasses.replace(TARGET, type=TableType.APPEND))


def test_a_table_that_was_made_for_another_one_gets_the_key_of_the_one_that_comes() -> None:
    lake, other = LakeTable(SourceTable()), SourceTable()
    other.key = ()
    other.alter(1, is_key=False)
    del lake.known["eu"]  # no row of the one that it was made for has come
    assert lake.follow(other).has_other_key
    assert lake.key == ()


def test_one_of_several_sources_gives_the_table_no_end_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_COLUMNS", 10)
    eu, us = SourceTable(), SourceTable()
    lake = LakeTable(eu)
    lake.follow(us, "us")

    def churn(number: int) -> None:
        """As whoever alters one table may do all day."""
        us.drop(us.add(f"x{number}"))
        us.add(f"y{number}")
        lake.follow(us, "us")

    for number in range(7):
        churn(number)
    with pytest.raises(SchemaError, match="would have 11 columns, those that were dropped included"):
        churn(7)
    assert len(lake.fields) == 10
    assert lake.follow(eu).steps == ()


def test_a_table_of_one_source_has_as_many_columns_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_COLUMNS", 4)
    eu = SourceTable()
    lake = LakeTable(eu)
    for number in range(3):
        eu.add(f"x{number}")
    lake.follow(eu)
    assert len(lake.fields) == 6


def test_a_default_that_is_too_long_to_be_read_comes_by_a_copy() -> None:
    table = SourceTable()
    lake = LakeTable(table, takes_defaults=True)
    table.add("c", TEXT, default=f"{LONG}4711")
    assert lake.follow(table).why_copy.endswith("rows that were there before have its default")
    assert lake.field_of(table, "c").initial_default is None


def test_a_default_is_of_the_source_whose_column_brought_it() -> None:
    eu, us = SourceTable(), SourceTable()
    lake = LakeTable(eu, takes_defaults=True)
    number = eu.add("d", default="9")
    assert lake.follow(eu).why_copy == ""
    field = lake.field_of(eu, "d")
    assert field.initial_default == 9
    assert lake.known["eu"].defaulted == {field.field_id}
    eu.alter(number, missing=None)  # by VACUUM FULL: rows of a backlog are as old as they were
    eu.rewrite()
    eu.alter(number, name="e")
    lake.follow(eu)
    assert lake.known["eu"].defaulted == {field.field_id}
    eu.alter(number, name="d")
    lake.follow(eu)
    lake.follow(us, "us")
    us.add("d")
    assert lake.follow(us, "us").why_copy == ""
    assert lake.field_of(us, "d", "us") == lake.field_of(eu, "d")
    assert lake.known["us"].defaulted == set()
    eu.drop(number)
    lake.follow(eu)
    eu.add("d")  # in the same field, which the other source fills
    assert lake.follow(eu).why_copy
    assert lake.field_of(eu, "d").field_id == field.field_id
    assert lake.known["eu"].defaulted == set()


def test_a_default_is_not_of_a_table_that_took_the_place_of_one() -> None:
    table, other = SourceTable(), SourceTable()
    lake = LakeTable(table, takes_defaults=True)
    table.add("d", default="9")
    lake.follow(table)
    del lake.known["eu"]  # by a resync
    other.oid += 1
    lake.follow(other)
    other.add("d")
    assert lake.follow(other).why_copy == ""
    assert lake.field_of(other, "d").initial_default == 9
    assert lake.known["eu"].defaulted == set()


@pytest.mark.parametrize("kind", TableType)
def test_a_column_that_is_named_as_a_field_that_was_set_aside(kind: TableType) -> None:
    target = dataclasses.replace(TARGET, type=kind)
    table = SourceTable()
    lake = LakeTable(table)
    table.alter(2, pg_type=TEXT)
    table.rewrite()
    lake.follow(table, target=target)
    table.add("n__old")
    lake.follow(table, target=target)
    is_empty = kind is TableType.CLONE  # by the copy
    names = ["id", "n__old", "name", "n"] if is_empty else ["id", "n__old__old", "name", "n", "n__old"]
    assert lake.names == names


class TestTwoSources:
    """The lake's column follows the first source that changes; the other goes on filling it, by number."""

    def setup_method(self) -> None:
        self.eu, self.us = SourceTable(), SourceTable()
        self.lake = LakeTable(self.eu)
        self.lake.follow(self.us, "us")

    def test_a_rename_comes_first_to_one(self) -> None:
        self.eu.alter(2, name="amount")
        self.lake.follow(self.eu)
        assert self.lake.names == ["id", "amount", "name"]
        assert self.lake.follow(self.us, "us").steps == ()
        assert self.lake.field_of(self.us, "n", "us").name == "amount"
        self.us.alter(2, name="amount")
        assert self.lake.follow(self.us, "us").steps == ()
        assert self.lake.field_of(self.us, "amount", "us").name == "amount"

    def test_a_rename_to_a_name_that_the_other_has(self) -> None:
        self.us.add("amount")
        self.lake.follow(self.us, "us")
        self.eu.alter(2, name="amount")
        planned = self.lake.follow(self.eu)
        assert planned.why_copy
        assert self.lake.names == ["id", "n", "name", "amount"]
        assert self.lake.field_of(self.eu, "amount").name == "amount"

    def test_a_type_comes_first_to_one(self) -> None:
        self.eu.alter(2, pg_type=TEXT)
        self.eu.rewrite()
        assert self.lake.follow(self.eu).why_copy
        assert self.lake.field_of(self.us, "n", "us").name == "n__old"
        assert self.lake.follow(self.us, "us").why_copy == ""
        self.us.alter(2, pg_type=TEXT)
        self.us.rewrite()
        self.lake.follow(self.us, "us")
        assert self.lake.field_of(self.us, "n", "us") == self.lake.field_of(self.eu, "n")

    def test_a_column_added_to_one_and_then_the_other(self) -> None:
        self.eu.add("c")
        self.lake.follow(self.eu)
        self.us.add("c")
        planned = self.lake.follow(self.us, "us")
        assert (planned.steps, planned.why_copy) == ((), "")
        assert self.lake.field_of(self.us, "c", "us") == self.lake.field_of(self.eu, "c")

    def drop_and_add(self, target: Target) -> Evolution:
        """Drop n in one and add it again, with a look in between."""
        self.eu.drop(2)
        assert self.lake.follow(self.eu, target=target).why_copy == ""
        self.eu.add("n")
        planned = self.lake.follow(self.eu, target=target)
        self.check(self.eu, "eu")
        self.check(self.us, "us")
        again = self.lake.follow(self.eu, target=target)
        assert (again.steps, again.told, again.why_copy) == ((), (), "")
        return planned

    def test_a_column_of_a_clone_that_was_dropped_and_added_again_in_one(self) -> None:
        planned = self.drop_and_add(TARGET)
        assert planned.why_copy == "column n was added again, and other sources go on filling the earlier one"
        assert self.lake.names == ["id", "n", "name"]
        assert self.lake.field_of(self.us, "n", "us").name == "n"

    @pytest.mark.parametrize("kind", set(TableType) - {TableType.CLONE})
    def test_a_column_that_was_dropped_and_added_again_in_one_where_nothing_is_copied(self, kind: TableType) -> None:
        target = dataclasses.replace(TARGET, type=kind)
        planned = self.drop_and_add(target)
        assert planned.told == (
            "column n was added: the earlier one is n__old now, which other sources go on filling",
        )
        assert self.lake.names == ["id", "n__old", "name", "n"]
        assert self.lake.field_of(self.us, "n", "us").name == "n__old"
        self.us.drop(2)
        self.us.add("n")
        self.lake.follow(self.us, "us", target)
        assert self.lake.field_of(self.us, "n", "us") == self.lake.field_of(self.eu, "n")
        assert self.lake.names == ["id", "n__old", "name", "n"]

    def check(self, source: SourceTable, name: str) -> None:
        """No two columns share a field, and none is shown under the name of another one of its source."""
        fields = {column.name: self.lake.field_of(source, column.name, name) for column in source.live.values()}
        assert len({field.field_id for field in fields.values()}) == len(fields)
        for column, field in fields.items():
            assert field.name == column or field.name not in fields, (name, column, field.name)

    def test_names_that_were_swapped_in_one(self) -> None:
        self.eu.alter(2, name="x")
        self.eu.alter(3, name="n")
        self.eu.alter(2, name="name")
        self.eu.alter(2, pg_type=TEXT)
        self.eu.alter(3, pg_type=INT)
        self.eu.rewrite()
        assert self.lake.follow(self.eu).why_copy
        self.check(self.eu, "eu")
        self.check(self.us, "us")
        assert self.lake.follow(self.us, "us").steps == ()
        assert self.lake.field_of(self.us, "n", "us").name == "n"

    def test_a_name_that_was_passed_on_where_nothing_is_copied(self) -> None:
        """The other source has both names, so values move; those of before stay, and not under another column."""
        target = dataclasses.replace(TARGET, type=TableType.HISTORY)
        self.eu.drop(2)
        self.lake.follow(self.eu, target=target)
        self.eu.alter(3, name="n")
        self.eu.add("name")
        self.lake.follow(self.eu, target=target)
        assert self.lake.names == ["id", "n__old", "name__old", "n", "name"]
        self.check(self.eu, "eu")
        self.check(self.us, "us")
        self.us.drop(2)
        self.us.alter(3, name="n")
        self.us.add("name")
        self.lake.follow(self.us, "us", target)
        assert [self.lake.field_of(self.us, name, "us").name for name in ("n", "name")] == ["n", "name"]

    @pytest.mark.parametrize("kind", TableType)
    def test_a_field_with_values_of_a_dropped_column_does_not_get_the_name_of_another(self, kind: TableType) -> None:
        target = dataclasses.replace(TARGET, type=kind)
        self.us.alter(3, name="title")
        self.lake.follow(self.us, "us", target)
        self.eu.drop(2)
        self.lake.follow(self.eu, target=target)
        self.us.alter(2, name="name")
        planned = self.lake.follow(self.us, "us", target)
        told = "column n was renamed to name, and other sources have values in n"
        assert (planned.told, planned.why_copy) == ((told,), told)
        assert self.lake.names == ["id", "n", "title", "name"]
        assert self.lake.field_of(self.us, "name", "us").name == "name"
        assert self.lake.field_of(self.eu, "name").name == "title"

    def test_a_field_with_values_of_a_column_that_left_it_does_not_get_the_name_of_another(self) -> None:
        """The values of one source moved to another field, and those of before stay."""
        target = dataclasses.replace(TARGET, type=TableType.HISTORY)
        self.us.add("label")
        self.us.alter(3, name="title")
        self.lake.follow(self.us, "us", target)
        self.eu.alter(2, name="label")
        self.lake.follow(self.eu, target=target)
        assert self.lake.field_of(self.eu, "label").name == "label"
        self.us.alter(2, name="name")
        self.lake.follow(self.us, "us", target)
        assert self.lake.names == ["id", "n", "title", "label", "name"]

    def test_names_that_were_swapped_in_one_when_the_other_has_dropped_a_column(self) -> None:
        self.eu.drop(2)
        self.lake.follow(self.eu)
        self.us.alter(2, name="x")
        self.us.alter(3, name="n")
        self.us.alter(2, name="name")
        self.lake.follow(self.us, "us", dataclasses.replace(TARGET, type=TableType.APPEND))
        assert self.lake.names == ["id", "n__old", "n", "name"]
        assert self.lake.field_of(self.eu, "name").name == "n"

    def test_another_type_that_a_field_has_where_nothing_is_copied(self) -> None:
        """The other source's field of that name and type has values of another column."""
        target = dataclasses.replace(TARGET, type=TableType.CHANGELOG)
        self.eu, self.us = (SourceTable(("id", INT), ("a", TEXT), ("b", TEXT), ("c", INT)) for _ in range(2))
        self.lake = LakeTable(self.eu)
        self.lake.follow(self.us, "us")
        left = self.lake.field_of(self.eu, "b").field_id
        self.eu.alter(2, name="b")
        self.eu.alter(3, name="a")
        self.lake.follow(self.eu, target=target)
        for step in (RenameField("c", "c__old"), RenameField("b__old", "c")):  # as earlier versions named them
            self.lake.take(step)
        self.eu.alter(4, pg_type=TEXT)
        self.eu.rewrite()
        self.lake.follow(self.eu, target=target)
        assert self.lake.field_of(self.eu, "c").field_id != left
        self.check(self.eu, "eu")
        self.check(self.us, "us")

    def test_names_that_were_chained_in_one(self) -> None:
        self.eu.alter(3, name="label")
        self.eu.alter(2, name="name")
        self.eu.alter(2, pg_type=TEXT)
        self.eu.rewrite()
        assert self.lake.follow(self.eu).why_copy
        assert self.lake.names == ["id", "n", "name", "label"]
        self.check(self.eu, "eu")
        self.check(self.us, "us")

    def test_names_that_were_chained_in_one_between_two_looks(self) -> None:
        self.eu, self.us = (SourceTable(("id", INT), ("a", INT), ("b", INT)) for _ in range(2))
        self.lake = LakeTable(self.eu)
        self.lake.follow(self.us, "us")
        self.eu.alter(2, name="c")
        assert self.lake.follow(self.eu).why_copy == ""
        self.eu.alter(3, name="a")
        assert self.lake.follow(self.eu).why_copy
        assert self.lake.names == ["id", "c", "b", "a"]
        self.check(self.eu, "eu")
        self.check(self.us, "us")

    def test_another_key_is_refused(self) -> None:
        self.eu.alter(1, is_key=False)
        self.eu.alter(3, is_key=True)
        with pytest.raises(SchemaError, match=r"its key is \(name\) now, but other sources of shop\.items have"):
            self.lake.plan(self.eu)


_names = st.sampled_from(["a", "b", "c", "n", "name"])
_steps = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "retype", "look", "look"]), st.integers(0, 5), _names),
    max_size=20,
)


@settings(max_examples=examples(150), deadline=None)
@given(_steps)
def test_after_any_changes_every_column_has_a_field_of_its_name_and_type(steps: list[tuple[str, int, str]]) -> None:
    table = SourceTable()
    lake = LakeTable(table)
    values = {number: lake.known["eu"].columns[number].field for number in table.live}
    for what, place, name in [*steps, ("look", 0, "")]:
        names = {column.name for column in table.live.values()}
        rest = [number for number in table.live if number != 1]
        chosen = rest[place % len(rest)] if rest else None
        if what == "add" and name not in names:
            table.add(name, TEXT if place % 2 else INT)
        elif what == "drop" and chosen:
            table.drop(chosen)
        elif what == "rename" and chosen and name not in names:
            table.alter(chosen, name=name)
        elif what == "retype" and chosen:
            table.alter(chosen, pg_type=[INT, BIGINT, TEXT][place % 3])
            table.rewrite()
        elif what == "look":
            planned = lake.follow(table)
            used = set()
            for number, column in table.live.items():
                field = lake.field_of(table, column.name)
                assert field.name == column.name
                assert field.field_id not in used
                used.add(field.field_id)
                # A field only changes under a column when the rows are copied again.
                assert planned.why_copy or values.get(number, field.field_id) == field.field_id
                values[number] = field.field_id
            assert not lake.follow(table).steps


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.APPEND])
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(
    st.tuples(st.sampled_from(["eu", "us"]), st.sampled_from(["add", "drop", "rename", "swap", "retype", "look"]),
              st.integers(0, 5), _names), max_size=20,
))  # fmt: skip
def test_no_column_of_two_sources_is_shown_under_the_name_of_another_of_its_own(
    kind: TableType, steps: list[tuple[str, str, int, str]]
) -> None:
    target = dataclasses.replace(TARGET, type=kind)
    tables = {name: SourceTable(("id", INT), ("a", INT), ("b", INT)) for name in ("eu", "us")}
    lake = LakeTable(tables["eu"])
    lake.follow(tables["us"], "us")
    where = {name: {number: lake.known[name].columns[number].field for number in (1, 2, 3)} for name in tables}
    whose = {name: {field: number for number, field in where[name].items()} for name in tables}
    for source, what, place, name in [*steps, ("eu", "look", 0, ""), ("us", "look", 0, "")]:
        table = tables[source]
        names = {column.name for column in table.live.values()}
        rest = [number for number in table.live if number != 1]
        chosen = rest[place % len(rest)] if rest else None
        if what == "add" and name not in names:
            table.add(name, INT)
        elif what == "drop" and chosen:
            table.drop(chosen)
        elif what == "rename" and chosen and name not in names:
            table.alter(chosen, name=name)
        elif what == "swap" and len(rest) > 1:
            first, second = rest[0], rest[1 + place % (len(rest) - 1)]
            mine, other = table.live[first].name, table.live[second].name
            table.alter(first, name=other)
            table.alter(second, name=mine)
        elif what == "retype" and chosen:
            table.alter(chosen, pg_type=[INT, BIGINT, TEXT][place % 3])
            table.rewrite()
        elif what == "look":
            planned = lake.follow(table, source, target)
            for one, seen in tables.items():
                live = lake.known[one].live
                is_copied = one == source and bool(planned.why_copy)
                whose[one] = {} if is_copied and kind is TableType.CLONE else whose[one]
                shown = {column: next(f for f in lake.fields if f.field_id == known.field)
                         for column, known in live.items()}  # fmt: skip
                assert len({field.field_id for field in shown.values()}) == len(shown)
                for column, field in shown.items():
                    assert field.name == column or field.name not in shown, (one, column, field.name)
                    number = live[column].number
                    assert is_copied or where[one].get(number, field.field_id) == field.field_id
                    where[one][number] = field.field_id
                    # What another column has left in a field does not stay there under this one's name.
                    assert whose[one].get(field.field_id, number) == number
                    whose[one][field.field_id] = number
                # Nor is a field that has it called by the name of yet another.
                for field in lake.fields:
                    named = live.get(field.name)
                    assert named is None or whose[one].get(field.field_id, named.number) == named.number
                assert seen.live
                assert lake.strays(one) == {}, "it is not taken for someone else's doing"
            again = lake.follow(table, source, target)
            assert (again.steps, again.why_copy) == ((), "")
