"""The steps by which Iceberg is told of another layout."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.lake.format.layout import Layout, Ordering, Term
from kuvasz.lake.jvm.iceberg_layout import IcebergLayout
from tests.support.lake_table import schema

ID, DAY = Term(transform="identity", column="id", width=0), Term(transform="day", column="at", width=0)
BUCKET = Term(transform="bucket", column="id", width=4)


class Expressions:
    """Iceberg's, as texts."""

    def ref(self, column: str) -> str:
        return column

    def day(self, column: str) -> str:
        return f"day({column})"

    def bucket(self, column: str, width: int) -> str:
        return f"bucket({column}, {width})"


class Java:
    """A table that writes down what is changed."""

    def __init__(self, *names: str) -> None:
        self.names, self.steps = names, []

    def spec(self) -> Any:
        return SimpleNamespace(fields=lambda: [SimpleNamespace(name=lambda name=name: name) for name in self.names])

    def _note(self, *step: object) -> None:
        self.steps.append(step)

    def updateSpec(self) -> Any:  # noqa: N802 (Java)
        return SimpleNamespace(
            removeField=lambda name: self._note("remove", name), commit=lambda: self._note("commit"),
            addField=lambda name, term: self._note("add", name, term),
        )  # fmt: skip

    def replaceSortOrder(self) -> Any:  # noqa: N802 (Java)
        return SimpleNamespace(
            asc=lambda term, nulls: self._note("asc", term, nulls), commit=lambda: self._note("commit"),
            desc=lambda term, nulls: self._note("desc", term, nulls),
        )  # fmt: skip


def steps(now: Layout, wanted: Layout, *names: str) -> list[tuple[object, ...]]:
    java = Java(*names)
    iceberg = SimpleNamespace(
        expressions=SimpleNamespace(Expressions=Expressions()),
        NullOrder=SimpleNamespace(NULLS_FIRST="first", NULLS_LAST="last"),
    )  # fmt: skip
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)))
    handle: Any = SimpleNamespace(
        java=java, classes=SimpleNamespace(jvm=jvm), after_others=lambda change: change(), name="shop.items"
    )
    fields: Any = SimpleNamespace(
        read=lambda: schema((1, "id", "long"), (2, "at", "timestamp"), (3, "at_day", "int"))
    )
    IcebergLayout(handle, fields).replace(now, wanted)
    return java.steps


def test_partitions_that_stay_are_left_as_they_are() -> None:
    found = steps(Layout(partition=(ID, DAY)), Layout(partition=(ID, BUCKET)), "id", "at_day_part")
    assert found == [("remove", "at_day_part"), ("add", "id_bucket", "bucket(id, 4)"), ("commit",)]


def test_a_partition_takes_no_name_of_a_column_or_of_another_one() -> None:
    found = steps(Layout(), Layout(partition=(DAY,)))
    assert found[0] == ("add", "at_day_part", "day(at)")


@pytest.mark.parametrize(
    ("ordering", "step"),
    [
        (Ordering(term=ID), ("asc", "id", "first")),
        (Ordering(term=DAY, descends=True, nulls_first=False), ("desc", "day(at)", "last")),
    ],
)
def test_an_order_is_replaced_as_a_whole(ordering: Ordering, step: tuple[str, ...]) -> None:
    assert steps(Layout(order=(Ordering(term=BUCKET),)), Layout(order=(ordering,))) == [step, ("commit",)]


def test_what_is_as_it_should_be_is_not_touched() -> None:
    same = Layout(partition=(ID,), order=(Ordering(term=DAY),))
    assert steps(same, same, "id") == []
