"""What a target misses of its sources, as table properties. Pure.

A property ``kuvasz.gap.<source>`` holds a JSON list, oldest first: ``[{"from": "0/1A2B", "noticed": "2026-11-21T…",
"to": "0/2C3D", "until": "2026-11-21T…"}]``. The last one may be open: without `to` and `until`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence

from kuvasz import lsn
from kuvasz.errors import LakeError, place_of
from kuvasz.ports import Gap

PREFIX = "kuvasz.gap."

#: Gaps that are remembered of a source.
_MOST = 50

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def begin(position_lsn: int, gap_lsn: int | None) -> int:
    """Return where a gap begins: what is missing may come before what was applied, see `kuvasz.ports.Lake.forget`."""
    return position_lsn if gap_lsn is None else min(position_lsn, gap_lsn)


def parse(properties: Mapping[str, str], source: str, table: str) -> tuple[Gap, ...]:
    """Return a source's gaps from a table's properties.

    Raises:
        LakeError: They were damaged by someone.
    """
    text = properties.get(PREFIX + source)
    try:
        return () if text is None else tuple(_parse(entry) for entry in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{place_of(table=table)}: property {PREFIX}{source} is not a list of gaps: {text!r:.120}"
        raise LakeError(message, hint="restore the property, or drop it to copy the source again") from error


def _parse(entry: Mapping[str, str]) -> Gap:
    is_closed = "to" in entry
    return Gap(
        from_lsn=lsn.parse(entry["from"]),
        noticed_us=_micros(entry["noticed"]),
        to_lsn=lsn.parse(entry["to"]) if is_closed else 0,
        until_us=_micros(entry["until"]) if is_closed else 0,
    )


def render(gaps: Sequence[Gap]) -> str:
    """Return the property's value."""
    return json.dumps([_entry(gap) for gap in gaps[-_MOST:]])


def _entry(gap: Gap) -> dict[str, str]:
    entry = {"from": lsn.render(gap.from_lsn), "noticed": _time(gap.noticed_us)}
    if not gap.is_open:
        entry |= {"to": lsn.render(gap.to_lsn), "until": _time(gap.until_us)}
    return entry


def open_one(gaps: Sequence[Gap]) -> Gap | None:
    """Return the gap that is open."""
    return gaps[-1] if gaps and gaps[-1].is_open else None


def _time(us: int) -> str:
    return (_EPOCH + datetime.timedelta(microseconds=us)).isoformat()


def _micros(text: str) -> int:
    return (datetime.datetime.fromisoformat(text) - _EPOCH) // datetime.timedelta(microseconds=1)
