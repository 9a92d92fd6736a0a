"""Names that columns had in earlier schemas, and the steps in one transaction with what follows from them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.lake.format.schema import Field
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, Step, WidenField
from kuvasz.lake.jvm.iceberg_schema import IcebergSchema
from kuvasz.model import LakeType, ValueType


class Java:
    """A table of some schemas, the last of which is current; writes down what is changed."""

    def __init__(self, *schemas: dict[int, str]) -> None:
        self.all = schemas
        self.steps: list[tuple[object, ...]] = []
        self.set: dict[str, str] = {}

    def schema(self) -> dict[int, str]:
        return self.all[-1]

    def schemas(self) -> Any:
        return SimpleNamespace(values=lambda: self.all)

    def newTransaction(self) -> Any:  # noqa: N802 (Java)
        return SimpleNamespace(
            updateSchema=lambda: self, table=lambda: self, commitTransaction=lambda: self._note("done"),
            updateProperties=lambda: SimpleNamespace(set=self.set.__setitem__, commit=lambda: self._note("set")),
        )  # fmt: skip

    def _note(self, *step: object) -> None:
        self.steps.append(step)

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self._note(name, *given)


def handle(java: Java) -> Any:
    def to_json(columns: dict[int, str]) -> str:
        fields = [{"id": n, "name": name, "type": "long", "required": False} for n, name in columns.items()]
        return json.dumps({"schema-id": 4, "fields": fields})

    kind = SimpleNamespace(findField=lambda _: SimpleNamespace(type=lambda: "its type"))
    literals = SimpleNamespace(lit=lambda value: SimpleNamespace(to=lambda to: f"{value} as {to}"))
    iceberg = SimpleNamespace(
        SchemaParser=SimpleNamespace(fromJson=lambda _: kind), expressions=SimpleNamespace(Expressions=literals)
    )
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)), java=SimpleNamespace(
        math=SimpleNamespace(BigDecimal=lambda value: f"decimal {value}")))  # fmt: skip
    classes = SimpleNamespace(schema_json=to_json, jvm=jvm, new_list=list)
    return SimpleNamespace(
        java=java, classes=classes, asking=_nothing, after_others=lambda change: change(),
        refresh=lambda: java._note("refreshed"),
    )  # fmt: skip


class _nothing:  # noqa: N801 (a context)
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_earlier_names_lead_to_those_that_the_columns_have_now() -> None:
    java = Java({1: "id", 2: "a", 3: "gone"}, {1: "id", 2: "b", 3: "gone"}, {1: "id", 2: "c"})
    assert IcebergSchema(handle(java)).earlier_columns() == {"a": "c", "b": "c", "gone": None}


def test_a_name_that_went_is_not_that_of_a_column_that_has_it_now() -> None:
    java = Java({1: "id", 2: "a"}, {1: "id", 3: "a"})
    assert IcebergSchema(handle(java)).earlier_columns() == {"a": None}


def field(**facts: Any) -> Field:
    return Field(field_id=9, name="fresh", **({"type": ValueType(kind=LakeType.LONG)} | facts))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (AddField(field()), [("addColumn", None, "fresh", "its type"), ("commit",)]),
        (
            AddField(field(initial_default=7)),
            [("addColumn", "fresh", "its type", None, "7 as its type"), ("commit",)],
        ),
        (
            AddField(field(initial_default="1.5", type=ValueType(kind=LakeType.DECIMAL, precision=3, scale=1))),
            [("addColumn", "fresh", "its type", None, "decimal 1.5 as its type"), ("commit",)],
        ),
        (RenameField("a", "b"), [("renameColumn", "a", "b"), ("commit",)]),
        (WidenField("a", ValueType(kind=LakeType.LONG)), [("updateColumn", "a", "its type"), ("commit",)]),
        (
            RelaxFields(("a", "b")),
            [("setIdentifierFields", []), ("commit",), ("makeColumnOptional", "a"), ("makeColumnOptional", "b"),
             ("commit",)],
        ),
    ],
)  # fmt: skip
def test_a_step_is_made_with_the_properties_that_follow_in_one_transaction(step: Step, expected: list) -> None:
    java = Java({1: "id"})
    IcebergSchema(handle(java)).change([step], lambda schema: {"fields": str(len(schema.fields))})
    assert java.steps == [*expected, ("set",), ("done",), ("refreshed",)]
    assert java.set == {"fields": "1"}
