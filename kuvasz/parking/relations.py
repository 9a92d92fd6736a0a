"""Relations as JSON, for a log that outlives the process. Pure."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, Uniqueness


def render(relation: Relation) -> bytes:
    """Return a relation's JSON."""
    found = dataclasses.asdict(relation)
    found["identity"] = relation.identity.value
    del found["versions"]  # the stream has none
    for column in found["columns"]:
        if not column["veil"]:  # for earlier versions, which know of no veils, and so of no columns that have one
            del column["veil"]
    return json.dumps(found).encode()


def parse(data: bytes) -> Relation:
    """Return the relation that `render` was given.

    Raises:
        ValueError, TypeError, KeyError: It is none.
    """
    found = json.loads(data)
    return Relation(
        **{
            **found,
            "table": TableName(**found["table"]),
            "identity": ReplicaIdentity(found["identity"]),
            "columns": tuple(_column(column) for column in found["columns"]),
            "dropped": tuple(found["dropped"]),
            "generated": (),
            "uniqueness": Uniqueness(*found.get("uniqueness", ())),
            "seen": None,
        }
    )


def _column(found: dict[str, Any]) -> Column:
    facts = tuple(found.pop("facts", ()))
    found.pop("version", None)  # earlier versions of kuvasz wrote it
    return Column(**{**found, "pg_type": _pg_type(found["pg_type"]), "facts": facts})


def _pg_type(found: dict[str, Any]) -> PgType:
    inner = {name: _pg_type(found[name]) for name in ("element", "base") if found[name] is not None}
    return PgType(**{**found, **inner})


__all__ = ["parse", "render"]
