"""What a lake table was made as, as table properties.

Whether rows have a sid and how keys are hashed cannot change while it has rows, nor does the type of a table that
keeps what its sources have no more: the map has to go on saying what it said.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kuvasz.errors import SchemaError
from kuvasz.lake.format.schema import SID, LakeSchema
from kuvasz.model import TableType
from kuvasz.ports import Target

SEED_PROPERTY = "kuvasz.seed"
KEY_PROPERTY = "kuvasz.key"
TYPE_PROPERTY = "kuvasz.type"

#: The branch that is written; not there: the table's own, which is `MAIN`.
BRANCH_PROPERTY = "kuvasz.branch"
MAIN = "main"

#: Set on tables that were of another type (`kuvasz.lake.iceberg.remake`) to the last snapshot of before, 0 for none;
#: and `FILLED_PREFIX` with each source that was copied since. What is there of others is of a type from before.
REMADE_PROPERTY = "kuvasz.remade"
FILLED_PREFIX = "kuvasz.filled."

#: Names of columns of kuvasz's own that such a table has got.
OWN_PROPERTY = "kuvasz.own"

#: Set on tables with `Target.has_members`.
MEMBERS_PROPERTY = "kuvasz.members"


#: Set on tables with `Target.is_soft`, and on those that became one.
SOFT: Mapping[str, str] = MappingProxyType({"kuvasz.deletes": "soft"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity:
    """What a table was made with."""

    seed: bytes  #: the half of the seed of its keys' hashes that the lake has (`kuvasz.index.seed`)
    key: tuple[str, ...]  #: its columns, without sid; it may change with the source's


def render(target: Target, key: Sequence[str]) -> dict[str, str]:
    """Return the properties of a new table."""
    made = {SEED_PROPERTY: secrets.token_hex(16), **render_key(key), TYPE_PROPERTY: target.type.value}
    members = {MEMBERS_PROPERTY: "true"} if target.has_members else {}
    return {**made, **members, **(SOFT if target.is_soft else {})}


def render_key(key: Sequence[str]) -> dict[str, str]:
    """Return the property with a table's key."""
    return {KEY_PROPERTY: json.dumps(list(key))}


def render_type(kind: TableType, snapshot_id: int | None) -> dict[str, str]:
    """Return the properties of a table that is given another type, behind a snapshot."""
    return {TYPE_PROPERTY: kind.value, REMADE_PROPERTY: str(snapshot_id or 0)}


def last_of_another_type(properties: Mapping[str, str]) -> int | None:
    """Return the last snapshot of a table before it was given its type; None: it has had no other."""
    text = properties.get(REMADE_PROPERTY)
    return None if text is None else int(text)


def made_as(properties: Mapping[str, str]) -> TableType:
    """Return a table's type."""
    return TableType(properties.get(TYPE_PROPERTY, TableType.CLONE))


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a table's key, without sid."""
    return tuple(json.loads(properties.get(KEY_PROPERTY, "[]")))


def may_be_another(properties: Mapping[str, str], target: Target) -> bool:
    """Whether a table may be something else than the map says that it can become."""
    is_other_key = target.key is not None and set(target.key) != set(key_of(properties))
    return is_other_key or made_as(properties) is not target.type


def is_former(properties: Mapping[str, str], source: str) -> bool:
    """Whether what is there of a source is of the type that the table had before."""
    return REMADE_PROPERTY in properties and FILLED_PREFIX + source not in properties


def can_become_another(properties: Mapping[str, str], *, is_empty: bool) -> bool:
    """Whether a table may be given another type or key: it is kuvasz's, and no row is there that a copy would lack.

    Args:
        properties: The table's.
        is_empty: It has no snapshot.
    """
    if SEED_PROPERTY not in properties or KEY_PROPERTY not in properties:
        return False
    is_unfilled = REMADE_PROPERTY in properties and not any(name.startswith(FILLED_PREFIX) for name in properties)
    is_clone = made_as(properties) is TableType.CLONE and not is_soft(properties)
    return is_clone or is_unfilled or is_empty


def other_type(properties: Mapping[str, str], target: Target) -> SchemaError:
    """Return the error of a table that cannot be given the map's type."""
    before = made_as(properties)
    message = f"table {target.name} was made as {before}, and the map says {target.type}"
    hint = f"set `type: {before}`, choose another `target`, or drop the table from the lake to copy it anew"
    return SchemaError(message, hint=hint)


def parse(properties: Mapping[str, str], target: Target, schema: LakeSchema) -> TableIdentity:
    """Return what a table was made with.

    Raises:
        SchemaError: It is not what the map says, or was not made by kuvasz at all.
    """
    if SEED_PROPERTY not in properties or KEY_PROPERTY not in properties:
        message = f"table {target.name} exists in the lake and was not made by kuvasz"
        raise SchemaError(message, hint="choose another `target`, or drop the table from the lake")
    if made_as(properties) is not target.type:
        raise other_type(properties, target)
    seed = bytes.fromhex(properties[SEED_PROPERTY])
    key = key_of(properties)
    if (schema.by_name(SID) is not None) != target.has_sid and SID not in key:
        message = f"table {target.name} was made {'without' if target.has_sid else 'with'} a column sid"
        raise SchemaError(message, hint="keep the map's sids as they were, or choose another `target`")
    if (properties.get(MEMBERS_PROPERTY) is not None) != target.has_members:
        message = f"table {target.name} was made {'without' if target.has_members else 'with'} `partitions_regex`"
        raise SchemaError(message, hint="choose another `target`, or drop the table from the lake to copy it anew")
    if is_soft(properties) and not target.is_soft:
        message = f"table {target.name} keeps deleted rows, and the map says `deletes: hard`: they would seem to live"
        hint = "set `deletes: soft`, choose another `target`, or drop the table from the lake to copy it anew"
        raise SchemaError(message, hint=hint)
    return TableIdentity(seed=seed, key=key)


def is_soft(properties: Mapping[str, str]) -> bool:
    """Whether deleted rows stay in a table."""
    return properties.keys() >= SOFT.keys()
