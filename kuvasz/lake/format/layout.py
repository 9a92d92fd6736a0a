"""How the rows of a table lie: its partitions and the order within files. Pure; runs on executors.

From the map's `partition_by` and `sort_by` to Iceberg's partition spec and sort order (Iceberg spec, appendix C
"Partition Specs" and "Sort Orders"), and from rows to the files they belong to. What the table has counts, the map is
compared with it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.config import names
from kuvasz.config.problem import suggestion
from kuvasz.errors import SchemaError, place_of
from kuvasz.lake.format import partition_transforms
from kuvasz.lake.format.partition_transforms import Term
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.model import Int64s
from kuvasz.ports import Target

#: A partition's values as Iceberg's JSON has them (spec, appendix D "JSON single-value serialization").
Values: TypeAlias = tuple[Any, ...]

_SINGULAR = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_SUFFIX = {"identity": "", "bucket": "_bucket", "truncate": "_trunc", "year": "_year", "month": "_month",
           "day": "_day", "hour": "_hour"}  # fmt: skip
_RENDERED = re.compile(r"(\w+)(?:\[(\d+)\])?")

#: Iceberg counts the fields of partition specs from here on.
_FIRST_FIELD_ID = 1000


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

    def arrange(self, rows: pa.Table) -> list[tuple[Values, Int64s]]:
        """Return the partitions that rows fall into, each with its rows' numbers in the order they are to have."""
        if len(rows) == 0:
            return []
        groups, values = self._groups(rows)
        ranks = [_rank(one, rows) for one in self.order]
        order = np.lexsort([*reversed(ranks), groups])
        ends = np.cumsum(np.bincount(groups, minlength=len(values)))
        return list(zip(values, np.split(order, ends[:-1]), strict=True))

    def _groups(self, rows: pa.Table) -> tuple[Int64s, list[Values]]:
        """Return each row's partition as a number, and the partitions' values."""
        groups = np.zeros(len(rows), np.int64)
        values: list[Values] = [()]
        for term in self.partition:
            encoded = _term(term, rows).dictionary_encode(null_encoding="encode")
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            texts = [_json(value, encoded.dictionary.type) for value in encoded.dictionary]
            both, groups = np.unique(groups * len(texts) + codes, return_inverse=True)
            values = [(*values[pair // len(texts)], texts[pair % len(texts)]) for pair in both.tolist()]
        return groups, values


PLAIN = Layout()


def _term(term: Term, rows: pa.Table) -> pa.Array[Any]:
    array = rows.column(term.column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of no chunk
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return partition_transforms.apply(term, array)


def _rank(ordering: Ordering, rows: pa.Table) -> Int64s:
    """Return numbers that sort as the rows should."""
    array = _sortable(_term(ordering.term, rows))
    placement = "at_start" if ordering.nulls_first else "at_end"
    direction = "descending" if ordering.descends else "ascending"
    options = pc.RankOptions(sort_keys=[("", direction, placement)], tiebreaker="dense")
    return np.asarray(pc.rank(array, options=options).to_numpy(zero_copy_only=False)).astype(np.int64)


def _sortable(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return floats as integers in Iceberg's order: -NaN, -Infinity, …, -0, +0, …, Infinity, NaN."""
    if not pa.types.is_floating(array.type):
        return array
    wide = array.cast(pa.float64())
    bits = pc.fill_null(wide, 0.0).to_numpy(zero_copy_only=False).view(np.int64)
    flipped = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(flipped, mask=array.is_null().to_numpy(zero_copy_only=False))


def _json(value: pa.Scalar[Any], kind: pa.DataType) -> Any:  # noqa: ANN401 (JSON)
    if not value.is_valid:
        return None
    plain = value.as_py()
    if pa.types.is_decimal(kind):
        return format(plain, "f")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return str(plain.isoformat())
    if pa.types.is_fixed_size_binary(kind):
        text = plain.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return plain.hex().upper() if isinstance(plain, bytes) else plain


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
    takes = partition_transforms.TAKES[transform]
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
    if match is None or match[1] not in partition_transforms.TAKES or field is None:
        what = f"its partition spec or sort order has {part['transform']}, which kuvasz cannot write"
        message = f"{place_of(table=table)}: {what}"
        raise SchemaError(message, hint="take it out in the lake, and set `partition_by` and `sort_by` in the map")
    return Term(transform=match[1], column=field.name, width=int(match[2] or 0))


__all__ = ["PLAIN", "Layout", "Ordering", "Values", "field_name", "parse", "render_order", "render_spec", "wanted"]
