"""The schema of a lake table: Iceberg's JSON on one side, Arrow with field ids on the other.

JSON per the Iceberg spec, appendix C "Schemas". Pure: no catalog, no files.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import typemap
from kuvasz.errors import SchemaError, place_of
from kuvasz.model import REAL_BITS, Column, LakeType, Relation, TableType, ValueType, Wire
from kuvasz.modes import defaults, system_columns
from kuvasz.ports import LakeColumn, Target

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of the column that says which source a row came from.
SID = "sid"

#: What Iceberg has of each row beside its columns (``MetadataColumns.isMetadataColumn``, which Spark goes by): case
#: counts there.
OF_ICEBERG = frozenset({
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
})  # fmt: skip

_NO_IDENTIFIER = frozenset({LakeType.FLOAT, LakeType.DOUBLE, LakeType.LIST, LakeType.MAP})
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_KINDS = {kind.value for kind in LakeType} - {"list", "map", "decimal"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of a lake table. The type's `wire` is meaningless here: sources decide it."""

    field_id: int
    name: str
    type: ValueType
    required: bool = False
    inner_ids: tuple[int, ...] = ()  #: of a list's element, or of a map's key and value
    initial_default: Any = None  #: what rows of files without the column have, as Iceberg's JSON (format 3)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeSchema:
    """The current schema of a lake table."""

    schema_id: int
    fields: tuple[Field, ...]
    #: see `arrow`, which makes it once: of seven fields it takes 3.4 kB, and each source of a fleet has it
    _arrow: pa.Schema | None = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def by_name(self, name: str) -> Field | None:
        """Return the field of that name, None if there is none."""
        return next((field for field in self.fields if field.name == name), None)

    def columns(self) -> tuple[LakeColumn, ...]:
        """Return the columns as they are shown."""
        return tuple(
            LakeColumn(field_id=field.field_id, name=field.name, type=typemap.iceberg_name(field.type))
            for field in self.fields
        )

    def arrow(self) -> pa.Schema:
        """Return the Arrow schema with the field ids that Parquet files must carry (Iceberg spec, "Parquet")."""
        import pyarrow as pa  # which most verbs need not wait for

        made = self._arrow
        if made is None:
            made = pa.schema([arrow_field(field) for field in self.fields])
            object.__setattr__(self, "_arrow", made)  # what it is made of never changes
        return made


def arrow_field(field: Field) -> pa.Field:
    """Return one Arrow field with its ids, nested ones included."""
    import pyarrow as pa

    kind = typemap.arrow_type(field.type)
    if field.type.kind is LakeType.LIST:
        assert field.type.element is not None
        inner = typemap.arrow_type(field.type.element)
        kind = pa.list_(pa.field("element", inner, metadata=_id(field.inner_ids[0])))
    elif field.type.kind is LakeType.MAP:
        key = pa.field("key", pa.string(), nullable=False, metadata=_id(field.inner_ids[0]))
        kind = pa.map_(key, pa.field("value", pa.string(), metadata=_id(field.inner_ids[1])))
    metadata = _id(field.field_id) | defaults.metadata(field.initial_default)
    return pa.field(field.name, kind, nullable=not field.required, metadata=metadata)


def _id(number: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(number).encode()}


def parse(text: str) -> LakeSchema:
    """Read Iceberg's JSON.

    Raises:
        SchemaError: A column has a type that kuvasz does not write.
    """
    schema = json.loads(text)
    return LakeSchema(
        schema_id=schema.get("schema-id", 0),
        fields=tuple(_parse_field(field) for field in schema["fields"]),
    )


def _parse_field(field: Mapping[str, Any]) -> Field:
    kind = field["type"]
    inner: tuple[int, ...] = ()
    if isinstance(kind, dict):
        inner = (kind["element-id"],) if kind["type"] == "list" else (kind.get("key-id", 0), kind.get("value-id", 0))
    return Field(
        field_id=field["id"],
        name=field["name"],
        type=_parse_type(kind, field["name"]),
        required=field["required"],
        inner_ids=inner,
        initial_default=field.get("initial-default"),
    )


def _parse_type(kind: str | Mapping[str, Any], name: str) -> ValueType:
    if isinstance(kind, Mapping):
        if kind["type"] == "list":
            return ValueType(kind=LakeType.LIST, wire=Wire.ARRAY, element=_parse_type(kind["element"], name))
        if kind["type"] == "map" and kind["key"] == "string" and kind["value"] == "string":
            return ValueType(kind=LakeType.MAP, wire=Wire.HSTORE)
    elif match := _DECIMAL.fullmatch(kind):
        return ValueType(kind=LakeType.DECIMAL, precision=int(match[1]), scale=int(match[2]))
    elif kind in _KINDS:
        return ValueType(kind=LakeType(kind))
    message = f"column {name} of the lake table has type {kind}, which kuvasz does not write"
    raise SchemaError(message, hint="choose another target, or drop the column from the lake table")


def render(fields: Sequence[Field], key: Iterable[str]) -> str:
    """Return Iceberg's JSON of a new table; `key` names the identifier fields.

    Iceberg takes no floats, lists or maps as identifiers (spec, "Identifier Field IDs"). A part of the key would say
    that it is unique, so then there are none: kuvasz itself knows the key from a property of the table.
    """
    names = set(key)
    key_fields = [field for field in fields if field.name in names]
    can_identify = not any(field.type.kind in _NO_IDENTIFIER for field in key_fields)
    identifiers = [field.field_id for field in key_fields] if can_identify else []
    return json.dumps(
        {
            "type": "struct",
            "schema-id": 0,
            "identifier-field-ids": identifiers,
            "fields": [
                {"id": field.field_id, "name": field.name, "required": field.required, "type": type_json(field)}
                for field in fields
            ],
        }
    )


def type_json(field: Field) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON of a field's type."""
    if field.type.kind is LakeType.LIST:
        assert field.type.element is not None
        element = Field(field_id=0, name="", type=field.type.element)
        return {"type": "list", "element-id": field.inner_ids[0], "element": type_json(element),
                "element-required": False}  # fmt: skip
    if field.type.kind is LakeType.MAP:
        return {"type": "map", "key-id": field.inner_ids[0], "key": "string", "value-id": field.inner_ids[1],
                "value": "string", "value-required": False}  # fmt: skip
    if field.type.kind is LakeType.DECIMAL:
        return f"decimal({field.type.precision}, {field.type.scale})"
    return field.type.kind.value


def wanted(target: Target, relation: Relation, *, first_id: int = 1) -> tuple[Field, ...]:
    """Return the fields a target needs for one relation, `sid` first, with provisional ids."""
    fields: list[Field] = []
    number = first_id
    if target.has_sid:
        if target.takes(SID) and any(column.name == SID for column in relation.columns):
            message = f"table {relation.table} has a column named {SID}, which the target {target.name} needs itself"
            raise SchemaError(message, hint=f"rename the source's column, or leave it out with `exclude: [{SID}]`")
        fields.append(Field(field_id=number, name=SID, type=ValueType(kind=LakeType.STRING), required=True))
        number += 1
    for column in relation.columns:
        if not target.takes(column.name):
            continue
        kind = source_type(column)
        inner = {LakeType.LIST: 1, LakeType.MAP: 2}.get(kind.kind, 0)
        fields.append(
            Field(
                field_id=number,
                name=column.name,
                type=kind,
                required=column.is_key and target.type is not TableType.CHANGELOG,  # a T row has no key
                inner_ids=tuple(range(number + 1, number + 1 + inner)),
            )
        )
        number += 1 + inner
    made = (*fields, *_own(target, relation, number))
    refuse_alike(made, place_of(table=relation.table))
    return made


def refuse_alike(fields: Iterable[Field], place: str) -> None:
    """Refuse a column with the name of a part of another: Iceberg calls the elements of a list ``tags.element``.

    Raises:
        SchemaError: There is one.
    """
    named = tuple(fields)
    parts = {
        f"{field.name}.{part}": field.name
        for field in named
        for part in {LakeType.LIST: ("element",), LakeType.MAP: ("key", "value")}.get(field.type.kind, ())
    }
    for field in named:
        if field.name in parts:
            message = f"{place}: Iceberg takes the column {field.name} for a part of the column {parts[field.name]}"
            raise SchemaError(message, hint=f"leave it out with `exclude: ['{field.name}']`, or rename it with `set`")


def refuse_unread(names: Iterable[str], beside: Iterable[str], place: str) -> None:
    """Refuse new columns by whose names Spark does not read the table at all.

    A table that has such already is let be: other engines read it.

    Args:
        names: The names of the columns that are new.
        beside: The names of all columns that the table has then.
        place: The source's table, for messages.

    Raises:
        SchemaError: There is one.
    """
    known: dict[str, list[str]] = {}
    for name in beside:
        known.setdefault(name.lower(), []).append(name)
    for name in names:
        hint = f"leave it out with `exclude: [{name}]`, or rename it with `set`"
        if name in OF_ICEBERG:
            message = f"{place}: Iceberg has something of its own by the name {name}, so Spark reads no such table"
            raise SchemaError(message, hint=hint)
        other = next((one for one in known.get(name.lower(), ()) if one != name), None)
        if other is not None:
            message = (
                f"{place}: the columns {other} and {name} differ in case only, and Spark reads no table with both"
            )
            raise SchemaError(message, hint=hint)


def _own(target: Target, relation: Relation, number: int) -> Iterator[Field]:
    names = {column.name for column in relation.columns}
    if target.is_soft and not relation.key:
        message = f"table {relation.table} has no key, by which deleted rows of {target.name} could be found again"
        raise SchemaError(message, hint="give it a primary key, or name its `key`, or leave out `deletes: soft`")
    if target.keeps_earlier and not relation.key:
        message = f"table {relation.table} has no key, by which {target.name} would keep a row's earlier version"
        raise SchemaError(message, hint="give it a primary key, or name its `key`, or have `on_bad_value: reject`")
    for column in system_columns.of(target.type, is_soft=target.is_soft):
        if column.name in names:
            message = (
                f"table {relation.table} has a column named {column.name}, which the {target.type} table"
                f" {target.name} needs itself"
            )
            raise SchemaError(
                message, hint=f"rename the source's column, or leave it out: `exclude: [{column.name}]`"
            )
        inner = (number + 1, number + 2) if column.kind is LakeType.MAP else ()
        yield Field(field_id=number, name=column.name, type=column.type, required=column.required, inner_ids=inner)
        number += 1 + len(inner)


def deleted_at() -> Field:
    """Return the field of a clone for when rows were deleted, with a provisional id."""
    (column,) = system_columns.of(TableType.CLONE, is_soft=True)
    return Field(field_id=1, name=column.name, type=column.type, required=column.required)


def bounded(target: Target, key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a target whose bounds files keep."""
    mine = tuple(column.name for column in system_columns.of(target.type, is_soft=target.is_soft) if column.bounded)
    return (*((SID,) if target.has_sid else ()), *key, *mine)


def typed(target: Target, relation: Relation) -> Relation:
    """Return a source's relation with what the map asks of its columns' types; all else goes by that."""
    if not target.types:
        return relation
    columns = tuple(dataclasses.replace(one, asked=target.types.get(one.name, "")) for one in relation.columns)
    return dataclasses.replace(relation, columns=columns)


def source_type(column: Column) -> ValueType:
    """Return the type a source's column has by the map (see `typed`), else by the type map.

    Raises:
        SchemaError: The map asks for a type that the column cannot have.
    """
    match = _DECIMAL.fullmatch(column.asked)
    asked = None if match is None else (int(match[1]), int(match[2]))
    is_text = column.is_grid or column.asked == LakeType.STRING.value
    return typemap.value_type(column.pg_type, column.typmod, decimal=asked, as_text=is_text)


def reading_type(column: Column, field: Field, place: str) -> ValueType:
    """Return how to read a source's column into an existing lake column.

    Raises:
        SchemaError: The lake's column cannot hold every value of the source's.
    """
    source = source_type(column)
    lake = field.type
    if is_same(source, lake):
        return source
    if lake.kind is LakeType.STRING:
        return ValueType(kind=LakeType.STRING, wire=Wire.TEXT)
    if (source.kind, lake.kind) == (LakeType.INT, LakeType.LONG):
        return dataclasses.replace(source, kind=lake.kind)
    if (source.kind, lake.kind) == (LakeType.FLOAT, LakeType.DOUBLE):
        return dataclasses.replace(source, kind=lake.kind, precision=REAL_BITS)
    if source.kind is LakeType.DECIMAL and lake.kind is LakeType.DECIMAL and _holds(lake, source):
        return dataclasses.replace(source, precision=lake.precision, scale=lake.scale)
    message = (
        f"{place}: column {column.name} is {typemap.iceberg_name(source)} by its type {column.pg_type.name},"
        f" but {typemap.iceberg_name(lake)} in the lake"
    )
    raise SchemaError(message, hint="give this table another `target`, or drop the lake table to copy it anew")


def reads(column: Column, field: Field) -> bool:
    """Whether an existing lake column can hold every value of a source's."""
    try:
        reading_type(column, field, "")
    except SchemaError:
        return False
    return True


def is_same(source: ValueType, lake: ValueType) -> bool:
    """Whether two types are one in the lake."""
    if source.kind is not lake.kind:
        return False
    if source.kind is LakeType.DECIMAL:
        return (source.precision, source.scale) == (lake.precision, lake.scale)
    if source.kind is LakeType.LIST:
        return source.element is not None and lake.element is not None and is_same(source.element, lake.element)
    return True


def _holds(lake: ValueType, source: ValueType) -> bool:
    return lake.scale >= source.scale and lake.precision - lake.scale >= source.precision - source.scale
