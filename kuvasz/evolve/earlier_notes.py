"""What is known of a source's columns as earlier versions of kuvasz noted it: one JSON object a source. Pure.

It has the table's OID, ``columns`` (live ones: name -> number, which is all that the first versions wrote),
``details`` of every column there ever was, and ``looks`` with all columns of each (`kuvasz.evolve.sights`). Nobody
writes it any more; see `kuvasz.evolve.column_notes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kuvasz.evolve.known import KnownColumn, SourceColumns
from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import Seen, Uniqueness


def parse(text: str) -> SourceColumns:
    """Return the columns that a note of theirs describes.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: It describes none.
    """
    facts = json.loads(text)
    live = {int(number): str(name) for name, number in facts["columns"].items()}
    columns = {number: KnownColumn(number=number, names=(name,)) for number, name in live.items()}
    missing, defaults = facts.get("missing"), facts.get("defaults")
    for text, detail in facts.get("details", {}).items():
        columns[int(text)] = KnownColumn(
            number=int(text),
            names=tuple(map(str, detail["names"])) or ("",),
            type_oid=int(detail["type"]),
            typmod=int(detail["typmod"]),
            version=int(detail["version"]),
            facts=tuple(map(str, detail.get("facts", ()))),
            field=int(detail["field"]),
            left=tuple(map(int, detail.get("left", ()))),
            asked=str(detail.get("asked", "")),
            is_live=int(text) in live,
            missing=None if missing is None else str(missing.get(text, "")),
            default_of=_default_of(text, detail, missing) if defaults is None else int(defaults.get(text, 0)),
        )
    return SourceColumns(
        oid=int(facts["oid"]),
        columns=columns,
        file=int(facts.get("file", 0)),
        attributes=int(facts.get("attributes", 0)),
        leaf_files=int(facts.get("leaf_files", 0)),
        uniqueness=Uniqueness(*map(int, facts.get("uniqueness", ()))),
        reads={str(name): int(number) for name, number in facts.get("reads", {}).items()},
        expressions=str(facts.get("expressions", "")),
        sights=_looks(facts.get("looks", ())),
    )


def _default_of(number: str, detail: Mapping[str, Any], missing: Mapping[str, Any] | None) -> int:
    """Return what an earlier version of kuvasz did not write: it took every field's default for its source's own."""
    has_constant = missing is None or bool(missing.get(number))
    return int(detail["field"]) if has_constant else 0


def _looks(found: Sequence[Mapping[str, Any]]) -> tuple[Sight, ...]:
    return tuple(
        Sight(
            seen=Seen(lsn=int(one["lsn"]), until=int(one["until"]), running=frozenset(map(int, one["running"]))),
            columns={int(number): _parse_face(*facts) for number, facts in one["columns"].items()},
            file=int(one["file"]), attributes=int(one["attributes"]), list_version=int(one["list"]),
        )
        for one in found
    )  # fmt: skip


def _parse_face(name: object, type_oid: Any, typmod: Any, version: Any, is_sent: object) -> SeenColumn:  # noqa: ANN401 (JSON)
    return SeenColumn(str(name), int(type_oid), int(typmod), int(version), bool(is_sent))


__all__ = ["parse"]
