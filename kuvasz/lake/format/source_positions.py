"""Positions of sources as table properties. Pure.

A property ``kuvasz.position.<source>`` holds eight facts with ``;`` between them, in few bytes: metadata has
it of every source and is written whole with every commit: ``1/2DFB96A1;co;3;fxgt;81n1rk5cja;1;;1jxd5xk8yn7i8``.
They are the LSN as PostgreSQL writes it, how far the commit LSN is below it, rows, xid, commit in µs, history, start
of the server in µs, and the system's id. What is not known is empty. Numbers are in base 36; a system's id that is no
number stands behind ``"``. `kuvasz notes` shows what it says.

It lives in a property because it must survive the expiry of snapshots, and in one of its own because two processes
may move two sources at a time. Earlier versions wrote JSON: ``{"lsn": "0/1A2B", "commit_lsn": "0/1A00", …}``.

A snapshot's summary repeats the positions that its commit moved. Metadata has the summaries of all snapshots, so
those of many sources are one entry there, ``kuvasz.positions``: a JSON object, source -> value, compressed (zlib) and
in base64.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from kuvasz import lsn
from kuvasz.errors import LakeError, place_of
from kuvasz.model import SourcePosition

PREFIX = "kuvasz.position."

#: An entry of a snapshot's summary with the positions of many sources.
PACKED = "kuvasz.positions"

#: Sources from which on a summary has their positions in one entry: 77 bytes for each become 18 of hundreds.
_MANY = 20

#: What is packed is not larger: 100,000 sources.
_PACKED_BYTES = 16 << 20

#: Begins an entry of a snapshot's summary with a commit time that is newer than that of the position's transaction,
#: in µs since 2000 UTC and base 36: by whose clock the source committed is its own affair, and a replicated
#: transaction has the time of another server.
NEWEST_PREFIX = "kuvasz.newest."

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

#: Begins a system's id that is no number.
_TEXT = '"'


def render(position: SourcePosition) -> str:
    """Return the property's value."""
    facts = (
        lsn.render(position.lsn),
        _number(position.lsn - position.commit_lsn) or "0" if position.commit_lsn else "",
        _number(position.rows),
        _number(position.xid),
        _number(position.commit_us),
        _number(position.history),
        _number(position.started_us),
        _system(position.system_id),
    )
    return ";".join(facts)


def _system(system_id: str) -> str:
    is_number = system_id.isascii() and system_id.isdigit() and not system_id.startswith("0")
    return _number(int(system_id)) if is_number else system_id and _TEXT + system_id


def _number(value: int) -> str:
    """Return a number in base 36; nothing for 0."""
    digits, left = "", abs(value)
    while left:
        left, digit = divmod(left, 36)
        digits = _DIGITS[digit] + digits
    return f"-{digits}" if value < 0 else digits


def parse(properties: Mapping[str, str], table: str) -> dict[str, SourcePosition]:
    """Return source -> position from a table's properties.

    Raises:
        LakeError: A position was damaged by someone.
    """
    try:
        texts = texts_of(properties)
    except ValueError as error:
        raise LakeError(
            f"{place_of(table=table)}: {PACKED} in the summary of a snapshot has no positions: {error}",
            hint="restore the summary, or ask for another moment",
        ) from error
    return {sys.intern(source): _parse(text, PREFIX + source, table) for source, text in texts.items()}


def texts_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return source -> position, as it is written, from a table's properties or from the summary of a snapshot.

    Raises:
        ValueError: The entry of many sources cannot be read.
    """
    found = _unpacked(properties[PACKED]) if PACKED in properties else {}
    for name, value in properties.items():
        if name.startswith(PREFIX):
            found[name.removeprefix(PREFIX)] = value
    return found


def text_in(entry: Callable[[str], str | None], source: str) -> str | None:
    """Return one source's position from the summary of a snapshot, as it is written; None: it has not moved.

    Args:
        entry: Gives an entry of the summary.
        source: The source.
    """
    text = entry(PREFIX + source)
    if text is not None or (packed := entry(PACKED)) is None:
        return text
    with contextlib.suppress(ValueError):  # as if it said nothing: the one before does
        return _unpacked(packed).get(source)
    return None


def packed(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a summary repeats of a table's properties: positions of many sources in one entry."""
    texts = {name.removeprefix(PREFIX): text for name, text in properties.items() if name.startswith(PREFIX)}
    if len(texts) < _MANY:
        return dict(properties)
    whole = zlib.compress(json.dumps(texts, separators=(",", ":")).encode())
    others = {name: text for name, text in properties.items() if not name.startswith(PREFIX)}
    return {**others, PACKED: base64.b64encode(whole).decode()}


def _unpacked(text: str) -> dict[str, str]:
    try:
        inflated = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _PACKED_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    found = json.loads(inflated)
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError("it is no object of texts")
    return found


def newest(positions: Mapping[str, SourcePosition], newest_us: Mapping[str, int]) -> dict[str, str]:
    """Return what a summary says of sources whose newest commit time is not that of their last transaction.

    Args:
        positions: Where the commit brings the sources.
        newest_us: The newest commit time of each source that it has changes of.
    """
    return {
        NEWEST_PREFIX + source: _number(newest_us[source])
        for source, position in positions.items()
        if newest_us.get(source, position.commit_us) > position.commit_us
    }


def parse_newest(summary: Mapping[str, str]) -> dict[str, int]:
    """Return what `newest` noted in a summary; what cannot be read was not."""
    found = {}
    for name, value in summary.items():
        with contextlib.suppress(ValueError):
            if name.startswith(NEWEST_PREFIX):
                found[name.removeprefix(NEWEST_PREFIX)] = _value(value)
    return found


def lsn_of(text: str) -> int:
    """Return the LSN of a position, whatever else there is of it.

    Raises:
        ValueError, KeyError, TypeError: It has none.
    """
    return lsn.parse(json.loads(text)["lsn"] if _is_earlier(text) else text.partition(";")[0])


def _is_earlier(text: str) -> bool:
    return text.startswith("{")


def _parse(value: str, name: str, table: str) -> SourcePosition:
    try:
        return _of_earlier(json.loads(value)) if _is_earlier(value) else _of(value)
    except (ValueError, KeyError, TypeError) as error:
        message = f"{place_of(table=table)}: property {name} is not a position: {value[:120]!r}"
        raise LakeError(message, hint="restore the property, or drop it to copy the source again") from error


def _of(text: str) -> SourcePosition:
    place, behind, rows, xid, commit_us, history, started_us, system = text.split(";", 7)
    here = lsn.parse(place)
    return SourcePosition(
        lsn=here, commit_lsn=here - int(behind, 36) if behind else 0, rows=_value(rows), xid=_value(xid),
        commit_us=_value(commit_us), history=_value(history), started_us=_value(started_us),
        # Of all sources of a server it is one text.
        system_id=sys.intern(system[1:] if system.startswith(_TEXT) else str(_value(system) or "")),
    )  # fmt: skip


def _value(text: str) -> int:
    return int(text, 36) if text else 0


def _of_earlier(facts: Mapping[str, Any]) -> SourcePosition:
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


__all__ = ["PREFIX", "lsn_of", "parse", "render"]
