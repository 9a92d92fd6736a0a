"""Positions of sources as table properties. Pure.

A property ``kuvasz.position.<source>`` holds JSON: ``{"lsn": "0/1A2B", "commit_lsn": "0/1A00", "rows": 3,
"system_id": "7361…", "history": 1, "xid": 742, "commit_us": 816…}``, of a copy ``"started_us": 176…``; what is not
known is left out. It lives in a property because it must survive the expiry of snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kuvasz import lsn
from kuvasz.errors import LakeError, place_of
from kuvasz.model import SourcePosition

PREFIX = "kuvasz.position."


def render(position: SourcePosition) -> str:
    """Return the property's value."""
    facts: dict[str, str | int] = {
        "lsn": lsn.render(position.lsn),
        "commit_lsn": lsn.render(position.commit_lsn),
        "rows": position.rows,
        "system_id": position.system_id,
    }
    names = ("history", "xid", "commit_us", "started_us")
    more = {name: getattr(position, name) for name in names}
    return json.dumps(facts | {name: value for name, value in more.items() if value})


def parse(properties: Mapping[str, str], table: str) -> dict[str, SourcePosition]:
    """Return source -> position from a table's properties.

    Raises:
        LakeError: A position was damaged by someone.
    """
    return {
        name.removeprefix(PREFIX): _parse(value, name, table)
        for name, value in properties.items()
        if name.startswith(PREFIX)
    }


def _parse(value: str, name: str, table: str) -> SourcePosition:
    try:
        facts = json.loads(value)
        return SourcePosition(
            lsn=lsn.parse(facts["lsn"]),
            commit_lsn=lsn.parse(facts["commit_lsn"]),
            rows=facts["rows"],
            system_id=facts["system_id"],
            history=int(facts.get("history", 0)),
            xid=int(facts.get("xid", 0)),
            commit_us=int(facts.get("commit_us", 0)),
            started_us=int(facts.get("started_us", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        message = f"{place_of(table=table)}: property {name} is not a position: {value[:120]!r}"
        raise LakeError(message, hint="restore the property, or drop it to copy the source again") from error
