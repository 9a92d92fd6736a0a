"""What a lake table was made as, as table properties.

Whether rows have a sid, how keys are hashed and what the table's type is cannot change while it has rows: the map has
to go on saying what it said.
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


def parse(properties: Mapping[str, str], target: Target, schema: LakeSchema) -> TableIdentity:
    """Return what a table was made with.

    Raises:
        SchemaError: It is not what the map says, or was not made by kuvasz at all.
    """
    if SEED_PROPERTY not in properties or KEY_PROPERTY not in properties:
        message = f"table {target.name} exists in the lake and was not made by kuvasz"
        raise SchemaError(message, hint="choose another `target`, or drop the table from the lake")
    made_as = properties.get(TYPE_PROPERTY, TableType.CLONE)
    if made_as != target.type:
        message = f"table {target.name} was made as {made_as}, and the map says {target.type}"
        hint = f"set `type: {made_as}`, choose another `target`, or drop the table from the lake to copy it anew"
        raise SchemaError(message, hint=hint)
    seed = bytes.fromhex(properties[SEED_PROPERTY])
    key: tuple[str, ...] = tuple(json.loads(properties[KEY_PROPERTY]))
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
