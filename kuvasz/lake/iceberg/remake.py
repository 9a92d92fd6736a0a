"""A clone's table that becomes another one: another type, or another key of several sources. It stays the same table.

    loaded ─> one commit: columns, type and key are those of the map, and no source has a position any more
           ─> copies, as of tables that are new, each of which takes the place of what its source had

So a kill at any moment leaves a table that is as it was, or one that is to be copied. Until its source is copied, a
row is read as it was, with NULL in columns that the new type adds. Only what every source can give again becomes
something else: a table that keeps what its sources have no more stays what it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kuvasz.errors import SchemaError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.evolve import column_notes
from kuvasz.lake.format import gaps, rule, source_positions, table_identity
from kuvasz.lake.format.schema import SID, bounded
from kuvasz.lake.format.schema_steps import AddField, RelaxFields
from kuvasz.lake.table import notes
from kuvasz.model import TableType
from kuvasz.modes import system_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.lake.format.schema import Field, LakeSchema
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.model import Relation
    from kuvasz.ports import Feed, Target
    from kuvasz.state.ports import Witness

_log = EventLog(__name__)

#: Begin properties that are of rows from before.
_OF_ROWS = (
    source_positions.PREFIX, gaps.PREFIX, rule.PREFIX, notes.PARKED_PREFIX, notes.REWOUND_PREFIX,
    table_identity.FILLED_PREFIX,
)  # fmt: skip


def remake(
    table: IcebergTable, target: Target, feed: Feed, relation: Relation, fields: Sequence[Field], witness: Witness
) -> None:
    """Make a table what the map says, if it is something else and can become that; nobody has it loaded.

    Args:
        table: The table.
        target: What the map says of it.
        feed: A source table that is about to be followed.
        relation: As the target has it.
        fields: What a new table would have.
        witness: Has seen its positions.

    Raises:
        SchemaError: A column has the name of one that the type needs itself.
        LakeError: The catalog failed.
    """
    properties, newest = table.properties, table.snapshots.current_id
    if not table_identity.can_become_another(properties, is_empty=newest is None):
        return
    schema, before = table.schema.read(), table_identity.made_as(properties)
    is_other, key_before = before is not target.type, table_identity.key_of(properties)
    key = _key(table, schema, target, feed, relation)
    if not is_other and set(key) == set(key_before):
        return
    positions = source_positions.parse(properties, target.name)
    for source, position in positions.items():
        witness.drop(target.name, source)
        witness.give_up(target.name, source, position)
    added, own = _own_fields(properties, schema, target, fields) if is_other else ((), {})
    kept = () if target.type is TableType.CHANGELOG else key  # a T row has no key
    relaxed = [one.name for one in schema.fields if one.required and one.name not in (SID, *kept)]
    changed: dict[str, str | None] = {
        **dict.fromkeys(name for name in properties if name.startswith(_OF_ROWS)),
        **notes.seen_set_back(),  # its index knows rows by what they were
        **table_identity.render_key(key),
        **(table_identity.render_type(target.type, newest) if is_other else {}),
        **own,
        **{f"write.metadata.metrics.column.{name}": "full" for name in bounded(target, key)},
    }
    table.schema.change((RelaxFields(tuple(relaxed)), *added), lambda _: changed)
    found = f"{_told(target.type, key)} now, and was {_told(before, key_before)}"
    _log.tell(Event.TABLE_REMADE, table=target.name, sources=sorted(positions), found=found)


def _told(kind: TableType, key: Sequence[str]) -> str:
    return f"{kind} by ({', '.join(key)})"


def _own_fields(
    properties: Mapping[str, str], schema: LakeSchema, target: Target, fields: Sequence[Field]
) -> tuple[tuple[AddField, ...], dict[str, str]]:
    """Return the steps that add the columns of a type, and the property that says whose they are."""
    names = system_columns.names(target.type, is_soft=target.is_soft)
    ours = set(json.loads(properties.get(table_identity.OWN_PROPERTY, "[]")))
    missing = [one for one in fields if one.name in names and schema.by_name(one.name) is None]
    ours |= {one.name for one in missing}
    for name in sorted(names - ours):
        message = f"{place_of(table=target.name)}: it has a column {name} that is not kuvasz's"
        hint = f"`type: {target.type}` needs that name: choose another `target`, or drop the table to copy it anew"
        raise SchemaError(message, hint=hint)
    return tuple(AddField(one) for one in missing), {table_identity.OWN_PROPERTY: json.dumps(sorted(ours))}


def _key(table: IcebergTable, schema: LakeSchema, target: Target, feed: Feed, relation: Relation) -> tuple[str, ...]:
    """Return the key that the table is to have, by the names that its columns have.

    A source's own key is followed by a table of that source alone (`kuvasz.lake.format.planning`); what the map says
    goes for all sources.
    """
    properties = table.properties
    before, is_other = table_identity.key_of(properties), table_identity.made_as(properties) is not target.type
    is_shared = any(name != feed.source for name in source_positions.parse(properties, target.name))
    is_mapped = target.key is not None and set(target.key) == set(relation.key)
    if not (is_mapped if is_shared else is_other):
        return before
    known = column_notes.parse(properties, target.name).get(feed.source)
    filled = {} if known is None or target.set is not None else known.fields
    by_id = {field.field_id: field.name for field in schema.fields}
    named = {column.name: by_id.get(filled.get(column.attnum, 0), column.name) for column in relation.columns}
    key = tuple(named[name] for name in relation.key)
    return key if all(schema.by_name(name) is not None for name in key) else before


__all__ = ["remake"]
