"""What the entries of a map look like to who asks for them, as JSON Schemas. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.model import TableType

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Schema

_TEXT: Final[Schema] = {"type": "string"}
_SWITCH: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 1}
_DATABASE: Final[dict[str, Schema]] = {
    "db_id": _NUMBER | {"description": "The id of its group."}, "db_name": _TEXT | {"description": "Its name."},
}  # fmt: skip
_REGEX: Final[Schema] = {
    "type": ["string", "null"],
    "description": "Tables of the schema whose whole name matches are one target.",
}


def _entry(about: str, **fields: Schema) -> Schema:
    properties = {"id": _NUMBER, **fields}
    return {"type": "object", "description": about, "properties": properties, "required": list(properties)}


ENTRY_SHAPES: Final[dict[str, Schema]] = {
    "Database": _entry("A group of the map.", name=_TEXT),
    "SourceUrl": _entry(
        "A source of a group.",
        **_DATABASE,
        sid=_TEXT | {"description": "Empty without one."},
        url=_TEXT | {"description": "`***` stands for its password."},
        up=_SWITCH | {"description": "Whether it streams."},
        status=_TEXT | {"description": "Its state, as in `/status`; empty if it does not run."},
        error=_TEXT | {"description": "Empty without one."},
    ),
    "TableEntry": _entry(
        "A table of a group.",
        **_DATABASE,
        schema=_TEXT,
        name=_TEXT,
        type={"type": "string", "enum": [kind.value for kind in TableType]},
        target=_TEXT | {"description": "Its table in the lake; with a namespace if that is not `lake.namespace`."},
        partitions_regex=_REGEX,
    ),
    "MapEntry": _entry(
        "A table of a group's sources, with what the map makes of it.",
        **_DATABASE,
        schema=_TEXT,
        name=_TEXT,
        type={"type": "string", "enum": ["", *(kind.value for kind in TableType)]},
        target=_TEXT | {"description": "Empty if the map does not have it."},
        filter=_TEXT,
        set={"type": ["object", "null"], "additionalProperties": _TEXT},
        partitions={
            "type": ["array", "null"],
            "items": _TEXT,
            "description": "Its partitions at the source, or the tables that `partitions_regex` takes in.",
        },
        partitions_regex=_REGEX,
        replicated=_SWITCH | {"description": "Whether the map has it."},
        present=_SWITCH | {"description": "Whether its target is in the lake."},
        source_columns={
            "type": "object",
            "additionalProperties": {"$ref": "#/components/schemas/SourceColumn"},
            "description": "Its columns at the source, by name; none where no source of the group answers.",
        },
    ),
    "SourceColumn": {
        "type": "object",
        "description": "A column of a table at its source.",
        "properties": {
            "name": _TEXT,
            "column_type": _TEXT | {"description": "The type's name in PostgreSQL's catalog."},
            "data_type_oid": {"type": "integer"},
            "primary_key": _SWITCH,
        },
        "required": ["name", "column_type", "data_type_oid", "primary_key"],
    },
}

#: Shape -> the fields by which a list may be sorted, and chosen from.
LIST_FIELDS: Final = {
    name: tuple(
        field
        for field, schema in shape["properties"].items()
        if "object" not in schema["type"] and "array" not in schema["type"]
    )
    for name, shape in ENTRY_SHAPES.items()
}

__all__ = ["ENTRY_SHAPES", "LIST_FIELDS"]
