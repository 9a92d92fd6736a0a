"""What a source table's columns were when the lake last agreed with them, as a table property. Pure.

``kuvasz.columns.<source>`` holds ``{"oid": 16384, "columns": {"id": 1, "name": 2}, "left_out": {"secret": 3}, …}``:
the table's OID and each column's number, those that the map leaves out apart. Names alone do not tell a renamed
column from a dropped and an added one, nor a table from another that took its name; whoever goes by names then fills
old rows wrongly, without an error. The numbers tell.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from kuvasz.errors import LakeError, SchemaError
from kuvasz.model import Relation
from kuvasz.ports import Target

PREFIX = "kuvasz.columns."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumns:
    """A source table's OID and columns."""

    oid: int
    columns: Mapping[str, int]  #: name -> pg_attribute.attnum
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: columns that the map did not want
    is_list: bool = False  #: the map named the columns it wants: whatever came meanwhile was left out as well

    def render(self) -> str:
        """Return the property's value."""
        facts = {"oid": self.oid, "columns": dict(self.columns)}
        if self.left_out or self.is_list:
            facts |= {"left_out": dict(self.left_out), "is_list": self.is_list}
        return json.dumps(facts)


def of(target: Target, relation: Relation) -> SourceColumns:
    """Return what is to be remembered of a relation as the catalog describes it."""
    return SourceColumns(
        oid=relation.oid,
        columns={column.name: column.attnum for column in relation.columns if target.takes(column.name)},
        left_out={column.name: column.attnum for column in relation.columns if not target.takes(column.name)},
        is_list=target.columns is not None,
    )


def parse(properties: Mapping[str, str], table: str) -> dict[str, SourceColumns]:
    """Return source -> columns from a table's properties.

    Raises:
        LakeError: A property was damaged by someone.
    """
    found = {}
    for name, value in properties.items():
        if not name.startswith(PREFIX):
            continue
        try:
            facts = json.loads(value)
            known = SourceColumns(
                oid=int(facts["oid"]),
                columns={k: int(v) for k, v in facts["columns"].items()},
                left_out={k: int(v) for k, v in facts.get("left_out", {}).items()},
                is_list=bool(facts.get("is_list")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"table {table}: property {name} does not describe columns: {value[:120]!r}"
            raise LakeError(message, hint="restore the property, or drop it") from error
        found[name.removeprefix(PREFIX)] = known
    return found


def check_table(known: SourceColumns, relation: Relation, place: str, target: str) -> None:
    """Refuse another table of the same name.

    Raises:
        SchemaError: It has another OID.
    """
    if relation.oid != known.oid:
        message = (
            f"{place}: this is not the table that was copied (OID {known.oid}, now {relation.oid}):"
            " it was dropped and created again, or the map names another"
        )
        raise SchemaError(message, hint=_copy_again(target))


def check(known: SourceColumns, relation: Relation, place: str, target: Target) -> None:
    """Refuse changes after which the lake's rows would not be what the source shows.

    A column that is new, may be NULL and has no default is NULL in the rows that the lake has, as at the source. A
    dropped column stays in the lake and is no longer filled.

    Args:
        known: What was remembered.
        relation: The table as the catalog describes it now.
        place: Source and table, for the message.
        target: The lake table.

    Raises:
        SchemaError: A column was renamed, dropped and added again, or added with values for existing rows.
    """
    check_table(known, relation, place, target.name)
    name_of = {number: name for name, number in known.columns.items()}
    for column in relation.columns:
        if not target.takes(column.name):
            continue
        if column.attnum == 0:
            continue  # only the stream has been seen: it does not tell
        before = name_of.get(column.attnum)
        if before is not None and before != column.name:
            what = f"column {before} was renamed to {column.name}"
        elif before is None and (known.is_list or column.attnum in known.left_out.values()):
            what = f"column {column.name} was left out until now, so the rows in the lake lack its values"
        elif before is None and column.name in known.columns:
            what = f"column {column.name} was dropped and added again"
        elif before is None and (column.has_default or not column.is_nullable):
            what = f"column {column.name} was added with a default, which rows in the lake do not have"
        else:
            continue
        raise SchemaError(f"{place}: {what}", hint=_copy_again(target.name))


def _copy_again(target: str) -> str:
    return f"drop the table {target} from the lake and start again: it is copied anew"
