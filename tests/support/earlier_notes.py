"""Notes of a table as earlier versions of kuvasz wrote them, to see that they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kuvasz import lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.evolve.sights import Sight
    from kuvasz.model import SourcePosition


def columns(known: SourceColumns) -> str:
    """A note of columns: one JSON object a source, with all of its looks."""
    return json.dumps(
        {
            "oid": known.oid,
            "columns": {name: column.number for name, column in known.live.items()},
            "file": known.file,
            "attributes": known.attributes,
            **({"leaf_files": known.leaf_files} if known.leaf_files else {}),
            **({"uniqueness": known.uniqueness} if any(known.uniqueness) else {}),
            **({"reads": dict(known.reads), "expressions": known.expressions} if known.expressions else {}),
            "details": {
                str(number): {
                    "names": column.names, "type": column.type_oid, "typmod": column.typmod,
                    "version": column.version, "field": column.field, "left": column.left,
                    **({"facts": column.facts} if column.facts else {}),
                    **({"asked": column.asked} if column.asked else {}),
                }
                for number, column in known.columns.items()
            },
            "missing": {str(number): column.missing for number, column in known.columns.items() if column.missing},
            "defaults": {str(number): one.default_of for number, one in known.columns.items() if one.default_of},
            "looks": _looks(known.sights),
        }
    )  # fmt: skip


def _looks(sights: Sequence[Sight]) -> list[dict[str, Any]]:
    return [
        {
            "lsn": sight.seen.lsn, "until": sight.seen.until, "running": sorted(sight.seen.running),
            "file": sight.file, "attributes": sight.attributes, "list": sight.list_version,
            "columns": {str(number): [*face] for number, face in sight.columns.items()},
        }
        for sight in sights
    ]  # fmt: skip


def position(known: SourcePosition) -> str:
    """A position: one JSON object."""
    facts: dict[str, str | int] = {
        "lsn": lsn.render(known.lsn), "commit_lsn": lsn.render(known.commit_lsn), "rows": known.rows,
        "system_id": known.system_id,
    }  # fmt: skip
    more = {name: getattr(known, name) for name in ("history", "xid", "commit_us", "started_us")}
    return json.dumps(facts | {name: value for name, value in more.items() if value})
