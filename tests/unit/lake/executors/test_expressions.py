"""What becomes of a relation by the map's expressions; Spark's word on them is a test's own."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

import pytest
from pyspark.sql import types as spark_types

from kuvasz.errors import ExpressionRefused, OptionRefused
from kuvasz.lake.executors import expressions
from kuvasz.lake.executors.analyzer import Analyzer
from kuvasz.lake.executors.expressions import Expressions, Projection
from kuvasz.model import Relation, ReplicaIdentity, TableType
from kuvasz.modes.shape import COMPUTED
from kuvasz.ports import Target
from tests.support.changes import ITEMS
from tests.support.shapes import CLONE

PLACE = "source eu, table public.items"


class Told(Analyzer):
    """Knows the types of a few expressions; a name alone is bare."""

    TYPES: ClassVar = {
        "n * 2": spark_types.LongType(), "upper(body)": spark_types.StringType(), "n > 1": spark_types.BooleanType(),
        "n + id": spark_types.IntegerType(), "body": spark_types.StringType(), "n": spark_types.IntegerType(),
    }  # fmt: skip

    def bare(self, text: str, option: str) -> int | None:
        return self._column(text, text, option) if text.isidentifier() else None

    def references(self, text: str, option: str) -> list[int]:
        names = re.findall(r"[a-z]+", text)
        return sorted({found for name in names if (found := self._find(name)) is not None})

    def type_of(self, text: str, option: str, inputs: list[int]) -> spark_types.DataType:
        return self.TYPES[text]


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "Analyzer", Told)


def project(relation: Relation = ITEMS, lake_key: tuple[str, ...] | None = None, **options: object) -> Projection:
    target = dataclasses.replace(Target(name="shop.items"), **options)
    return Expressions(None).project(target, relation, PLACE, lake_key)  # type: ignore[arg-type]


def shown(found: Projection) -> list[tuple[str, str, bool]]:
    return [(one.name, one.pg_type.name, one.is_key) for one in found.relation.columns]


def test_without_any_a_relation_stays_as_it_is() -> None:
    found = project()
    assert (found.relation, found.columns, found.transform) == (ITEMS, (0, 1, 2), None)
    assert found.apply(CLONE, ITEMS) is CLONE


def test_a_filter_takes_every_column_and_reads_its_own() -> None:
    found = project(filter="n > 1")
    assert (found.columns, found.reads) == ((0, 1, 2), ("n",))
    assert found.transform is not None
    assert (found.transform.filter, found.transform.filter_inputs) == ("n > 1", (0,))
    with pytest.raises(ExpressionRefused, match=f"{PLACE}, filter: 'upper\\(body\\)' is string, not a condition"):
        project(filter="upper(body)")


def test_columns_are_named_as_the_map_says_and_computed_with_their_types() -> None:
    found = project(set={"number": "id", "twice": "n * 2", "loud": "upper(body)"})
    assert shown(found) == [("number", "int8", True), ("twice", "int8", False), ("loud", "text", False)]
    assert found.columns == (0, COMPUTED, COMPUTED - 1)
    assert found.reads == ("body", "id", "n")
    assert found.transform is not None
    assert [(one.name, one.inputs) for one in found.transform.computed] == [("twice", (0,)), ("loud", (1,))]


def test_the_key_must_be_among_the_columns() -> None:
    with pytest.raises(ExpressionRefused) as caught:
        project(set={"n": "n"})
    assert caught.value.message == f"{PLACE}: `set` leaves out id, which is part of the table's key"
    assert shown(project(set={"n": "n", "id": "id"}, key=("id",)))[1] == ("id", "int8", True)


def test_a_key_that_a_delete_does_not_tell_is_refused() -> None:
    with pytest.raises(ExpressionRefused) as caught:
        project(set={"id": "id", "sum": "n + id"}, key=("sum",))
    assert "`key` names sum, which is made of n: a DELETE does not carry it" in caught.value.message
    full = dataclasses.replace(ITEMS, identity=ReplicaIdentity.FULL)
    assert project(full, set={"id": "id", "sum": "n + id"}, key=("sum",))
    assert project(set={"id": "id", "sum": "n + id"}, key=("sum",), type=TableType.APPEND)


def test_where_every_column_is_called_a_key_that_of_the_lakes_table_counts() -> None:
    columns = tuple(dataclasses.replace(one, is_key=True) for one in ITEMS.columns)
    full = dataclasses.replace(ITEMS, identity=ReplicaIdentity.FULL, columns=columns)
    found = project(full, lake_key=("id",), set={"id": "id", "n": "n", "body": "body"})
    assert [one[2] for one in shown(found)] == [True, False, False]


def test_where_every_column_is_called_a_key_out_of_range_goes_for_those_of_none() -> None:
    """As in copies, which know the key: what an expression looks at would be refused in the stream alone."""
    columns = tuple(dataclasses.replace(one, is_key=True) for one in ITEMS.columns)
    full = dataclasses.replace(ITEMS, identity=ReplicaIdentity.FULL, columns=columns)

    def identity(*key: str, **options: object) -> tuple[int, ...]:
        found = project(full, lake_key=key, **options).transform
        assert found is not None
        return found.identity

    assert identity("id", filter="n > 1") == (0,)
    assert identity("number", set={"number": "id", "twice": "n * 2"}) == (0,)
    assert identity("sum", set={"sum": "n + id", "body": "body"}, key=("sum",)) == (0, 1)
    assert identity(filter="n > 1") == (), "rows without a key are told apart by what the policy makes of them"
    assert identity("renamed", filter="n > 1") == (0, 1, 2), "which one that is is not known"


def test_a_masked_column_is_a_text_and_hides_what_is_read() -> None:
    found = project(mask={"n": "hmac"})
    assert shown(found)[1] == ("n", "text", False)
    assert found.transform is not None
    assert found.transform.is_hidden
    shape = found.apply(CLONE, ITEMS)
    masks = {one.name: (one.mask, one.source) for one in shape.bindings if one.column >= 0}
    assert masks == {"id": (None, "id"), "n": ("hmac", "n"), "body": (None, "body")}


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"mask": {"boddy": "hmac"}}, ExpressionRefused, "`mask` names a column 'boddy' that is not there"),
        ({"mask": {"id": "redact"}}, OptionRefused, "`mask` redacts id, which identifies the rows"),
        ({"mask": {"twice": "hmac"}, "set": {"id": "id", "twice": "n * 2"}}, ExpressionRefused,
         "`mask` hides texts, and `set.twice` gives none"),
        ({"set": {"id": "id", "x": "nowhere"}}, ExpressionRefused, "names a column 'nowhere'"),
    ],
)  # fmt: skip
def test_a_map_that_cannot_be_is_refused(options: dict, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        project(**options)


def test_columns_that_spark_takes_for_one_are_refused() -> None:
    columns = (*ITEMS.columns, dataclasses.replace(ITEMS.columns[1], name="N"))
    relation = dataclasses.replace(ITEMS, columns=columns)

    class Both(Told):
        def references(self, text: str, option: str) -> list[int]:
            return [1, 3]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(expressions, "Analyzer", Both)
        with pytest.raises(ExpressionRefused, match="'n' and 'N', which Spark SQL takes for one"):
            project(relation, filter="n > 1")
