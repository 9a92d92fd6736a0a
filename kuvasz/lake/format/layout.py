"""How the rows of a table lie: its partitions and the order within files. Pure; goes to executors.

From the map's `partition_by` and `sort_by` to Iceberg's partition spec and sort order (Iceberg spec, appendix C
"Partition Specs" and "Sort Orders"); `kuvasz.lake.files.arrangement` brings rows into it. What the table has
counts, the map is compared with it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from kuvasz.config import names
from kuvasz.config.problem import suggestion
from kuvasz.errors import SchemaError, place_of
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.lake.format.schema_steps import AddField, RenameField, Step
from kuvasz.model import LakeType
from kuvasz.ports import Target

#: A partition's values as Iceberg's JSON has them (spec, appendix D "JSON single-value serialization").
Values: TypeAlias = tuple[Any, ...]

_SINGULAR = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_SUFFIX = {"identity": "", "bucket": "_bucket", "truncate": "_trunc", "year": "_year", "month": "_month",
           "day": "_day", "hour": "_hour"}  # fmt: skip
_RENDERED = re.compile(r"(\w+)(?:\[(\d+)\])?")

#: Iceberg counts the fields of partition specs from here on.
_FIRST_FIELD_ID = 1000

#: Transform -> the kinds it takes. Floats are no partition values: NaN and the two zeros have no one form.
_TIMES = frozenset({LakeType.DATE, LakeType.TIMESTAMP, LakeType.TIMESTAMPTZ})
_WHOLE = frozenset({LakeType.INT, LakeType.LONG, LakeType.DECIMAL, LakeType.STRING, LakeType.BINARY})
TAKES: Mapping[str, frozenset[LakeType]] = {
    "identity": frozenset(LakeType) - {LakeType.LIST, LakeType.MAP, LakeType.FLOAT, LakeType.DOUBLE},
    "bucket": _WHOLE | _TIMES | {LakeType.UUID},
    "truncate": _WHOLE,
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": _TIMES - {LakeType.DATE},
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A transform of a column."""

    transform: str  #: a key of `TAKES`
    column: str
    width: int = 0  #: buckets, or what is kept of a value; 0 for the others

    def render(self) -> str:
        """Return the transform as Iceberg writes it."""
        return f"{self.transform}[{self.width}]" if self.width else self.transform


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One term of a sort order."""

    term: Term
    descends: bool = False
    nulls_first: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where rows go, in which order, and how their files are compressed."""

    partition: tuple[Term, ...] = ()
    order: tuple[Ordering, ...] = ()
    spec_id: int = 0
    order_id: int = 0
    codec: str = "zstd"  #: as Parquet calls it; ``none`` for none
    level: int | None = 1  #: None: the codec's own

    def compressed(self, properties: Mapping[str, str]) -> Layout:
        """Return it with the compression that table properties of the map ask for."""
        codec = properties.get(f"{names.COMPRESSION}codec", "zstd")
        level = properties.get(f"{names.COMPRESSION}level")
        usual = 1 if codec == "zstd" else None
        return dataclasses.replace(
            self, codec="none" if codec == "uncompressed" else codec, level=usual if level is None else int(level)
        )

    @property
    def is_plain(self) -> bool:
        """Whether rows stay together and as they come."""
        return not self.partition and not self.order


PLAIN = Layout()


# --- The map


#: No column had another name.
NO_NAMES: Mapping[str, str] = MappingProxyType({})


def wanted(target: Target, fields: Sequence[Field], former: Mapping[str, str] = NO_NAMES) -> Layout:
    """Return the layout that the map asks for.

    Args:
        target: What the map says.
        fields: The lake table's.
        former: Name that a column had -> name it has: the map may have been written before it was renamed.

    Raises:
        SchemaError: An expression names no column, or a transform that its type does not take.
    """
    from kuvasz.config import kinds  # executors know no map, and spare themselves pydantic

    partition = [_parse(target, "partition_by", text, text, fields, former) for text in target.partition_by]
    order = []
    for text in target.sort_by:
        term, descends, nulls_first = kinds.ordering_term(text)
        parsed = _parse(target, "sort_by", text, term, fields, former)
        order.append(Ordering(term=parsed, descends=descends, nulls_first=nulls_first))
    _check_redundant(target, partition)
    return Layout(partition=tuple(partition), order=tuple(order))


def _parse(
    target: Target, option: str, text: str, term: str, fields: Sequence[Field], former: Mapping[str, str]
) -> Term:
    from kuvasz.config import kinds

    place = f"{place_of(table=target.name)}, {option} {text!r}"
    transform, width, column = kinds.partition_term(term)
    transform = _SINGULAR.get(transform, transform)
    known = [field.name for field in fields]
    column = column if column in known else former.get(column, column)
    field = next((field for field in fields if field.name == column), None)
    if field is None:
        guess = suggestion(column, known)
        raise SchemaError(f"{place}: the table has no column {column!r}{guess}", hint="mend the entry in the map")
    takes = TAKES[transform]
    is_float = option == "sort_by" and transform == "identity" and field.type.kind.value in {"float", "double"}
    if field.type.kind not in takes and not is_float:
        message = f"{place}: {transform} is not for a column of type {field.type.kind.value}"
        names = ", ".join(sorted(kind.value for kind in takes))
        raise SchemaError(message, hint=f"it takes {names}: mend the entry in the map")
    return Term(transform=transform, column=column, width=width)


def _check_redundant(target: Target, partition: Sequence[Term]) -> None:
    times = {"year", "month", "day", "hour"}
    seen: set[tuple[str, str]] = set()
    for term, text in zip(partition, target.partition_by, strict=True):
        of = (term.column, "time" if term.transform in times else term.render())
        if of in seen:
            message = (
                f"{place_of(table=target.name)}, partition_by {text!r}: another entry divides the same column already"
            )
            raise SchemaError(message, hint="keep the finer of the two")
        seen.add(of)


# --- Iceberg's JSON


def render_spec(layout: Layout, fields: Sequence[Field]) -> str:
    """Return a new table's partition spec."""
    taken = {field.name for field in fields}
    parts = []
    for number, term in enumerate(layout.partition):
        name = field_name(term, taken)
        taken.add(name)
        parts.append({"name": name, "transform": term.render(), "source-id": _id(fields, term.column),
                      "field-id": _FIRST_FIELD_ID + number})  # fmt: skip
    return json.dumps({"spec-id": 0, "fields": parts})


def field_name(term: Term, taken: Iterable[str]) -> str:
    """Return the name of a partition field: as Spark has it, or a longer one where that is taken."""
    if term.transform == "identity":
        return term.column
    name = term.column + _SUFFIX[term.transform]
    longer = f"{name}_{term.width}" if term.width else f"{name}_part"
    taken = set(taken)
    while name in taken:
        name, longer = longer, f"{longer}_"
    return name


def refuse_taken(
    steps: Iterable[Step], fields: Iterable[Field], partitions: Collection[tuple[str, int]], place: str, table: str
) -> None:
    """Refuse a name that a partition field of the table has: Iceberg takes no column by it but the one it divides by.

    Partition fields of earlier layouts count, too: files that are there are of them.

    Args:
        steps: What is to be done to the table's columns.
        fields: The columns, before.
        partitions: Name and id of the column it divides by, of each partition field there ever was.
        place: The source and its table, for messages.
        table: The lake table's name.

    Raises:
        SchemaError: A step gives a column such a name.
    """
    ids = {field.name: field.field_id for field in fields}
    for step in steps:
        if isinstance(step, RenameField):
            ids[step.to] = number = ids.pop(step.name)
            name = step.to
        elif isinstance(step, AddField):
            name, number = step.field.name, 0
        else:
            continue
        if any(taken == name and of != number for taken, of in partitions):
            message = f"{place}: {table} is or was partitioned by what Iceberg calls {name}, so no column can be"
            hint = f"leave the column out with `exclude: [{name}]`, or give this table another `target`"
            raise SchemaError(message, hint=f"{hint}, or drop {table} from the lake to copy it anew")


def render_order(layout: Layout, fields: Sequence[Field]) -> str:
    """Return a new table's sort order."""
    parts = [
        {"transform": one.term.render(), "source-id": _id(fields, one.term.column),
         "direction": "desc" if one.descends else "asc",
         "null-order": "nulls-first" if one.nulls_first else "nulls-last"}
        for one in layout.order
    ]  # fmt: skip
    return json.dumps({"order-id": 1 if parts else 0, "fields": parts})


def _id(fields: Sequence[Field], column: str) -> int:
    return next(field.field_id for field in fields if field.name == column)


def parse(spec: str, order: str, schema: LakeSchema, table: str) -> Layout:
    """Return the layout a table has, from Iceberg's JSON of its spec and its sort order.

    Raises:
        SchemaError: It has a transform that kuvasz does not know, or one of a nested column.
    """
    spec_json, order_json = json.loads(spec), json.loads(order)
    orderings = tuple(
        Ordering(
            term=_term_of(part, schema, table),
            descends=part["direction"] == "desc",
            nulls_first=part["null-order"] == "nulls-first",
        )
        for part in order_json["fields"]
    )
    return Layout(
        partition=tuple(_term_of(part, schema, table) for part in spec_json["fields"]),
        order=orderings,
        spec_id=spec_json["spec-id"],
        order_id=order_json["order-id"],
    )


def _term_of(part: dict[str, Any], schema: LakeSchema, table: str) -> Term:
    match = _RENDERED.fullmatch(part["transform"])
    field = next((field for field in schema.fields if field.field_id == part["source-id"]), None)
    if match is None or match[1] not in TAKES or field is None:
        what = f"its partition spec or sort order has {part['transform']}, which kuvasz cannot write"
        message = f"{place_of(table=table)}: {what}"
        raise SchemaError(message, hint="take it out in the lake, and set `partition_by` and `sort_by` in the map")
    return Term(transform=match[1], column=field.name, width=int(match[2] or 0))


__all__ = [
    "PLAIN", "Layout", "Ordering", "Values", "field_name", "parse", "refuse_taken", "render_order", "render_spec",
    "wanted",
]  # fmt: skip
