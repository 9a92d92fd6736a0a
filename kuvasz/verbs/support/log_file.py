"""The part with the end of a log file: of lines that may quote a row what is left is that they were there.

kuvasz writes to stderr, and what keeps that puts other lines between its own. Taken are the lines that are known to
be kuvasz's, and the places of tracebacks; an error's text is taken where its event is known to quote no row.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kuvasz.admin.about import PUBLIC
from kuvasz.events import Event
from kuvasz.verbs.support.part import PartFiles

_MOST_LINES = 5000
_MOST_BYTES = 4 << 20

_BY_MESSAGE: dict[str, list[Event]] = collections.defaultdict(list)
for _event in Event:
    _BY_MESSAGE[_event.message].append(_event)

#: `12:00:00 warning`, behind whatever journald or a container's runtime writes in front; the longest message counts.
_MESSAGES = "|".join(re.escape(message) for message in sorted(_BY_MESSAGE, key=len, reverse=True))
_LINE = re.compile(
    rf".{{0,100}}?\b\d\d:\d\d:\d\d (?:debug|info|warning|error) +(?P<message>{_MESSAGES})(?= |$)(?P<facts>.*)"
)
_BELOW = re.compile(r"(?:.{0,100}?: )?    \S")

#: Places of a traceback, of Python and of Java.
_PLACE = re.compile(
    r"\s*(?:Traceback \(most recent call last\):|File \"[^\"]+\", line \d+, in [\w<>.]+"
    r"|at [\w.$/<>@]+\([\w.: ]*\))\s*"
)


def gather(file: Path) -> PartFiles:
    """Return the last lines of a log.

    Args:
        file: What stderr of kuvasz was written to.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _MOST_BYTES))
        lines = stream.read().decode("utf-8", "replace").splitlines()[-_MOST_LINES:]
    return PartFiles(files={"log.txt": "".join(f"{line}\n" for line in shown(lines))})


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Yield what of a log's lines may be given away, and how many were left out in between."""
    left_out, may_quote = 0, True
    for line in lines:
        kept, may_quote = _kept(line, may_quote=may_quote)
        if kept is None:
            left_out += 1
            continue
        if left_out:
            yield _told(left_out)
        left_out = 0
        yield kept
    if left_out:
        yield _told(left_out)


def _kept(line: str, *, may_quote: bool) -> tuple[str | None, bool]:
    """Return what is kept of a line, and whether what stands below it may quote a row."""
    if (entry := _entry(line)) is not None:
        return json.dumps(entry, ensure_ascii=False), True
    if (found := _LINE.match(line)) is not None:
        events = _BY_MESSAGE[found["message"]]
        is_ours = Event.SPARK_SAID not in events
        return line if is_ours else line[: found.start("facts")], not PUBLIC.issuperset(events)
    if _PLACE.fullmatch(line) or (not may_quote and _BELOW.match(line)):
        return line, may_quote
    return None, may_quote


def _entry(line: str) -> dict[str, Any] | None:
    """Return what is kept of a line of JSON; None if it is none of ours."""
    begin = line.find("{")
    try:
        entry = json.loads(line[begin:]) if 0 <= begin <= 100 else None
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    events = [one for one in _BY_MESSAGE.get(str(entry.get("message")), []) if one.code == entry.get("event")]
    if not events:
        return None
    hidden = set() if PUBLIC.issuperset(events) else {"error"}
    hidden |= {"line"} if Event.SPARK_SAID in events else set()
    trace = str(entry.get("traceback", "")).splitlines()
    kept = {name: value for name, value in entry.items() if name not in {*hidden, "traceback"}}
    return kept | ({"traceback": [part for part in trace if _PLACE.fullmatch(part)]} if trace else {})


def _told(left_out: int) -> str:
    return f"({left_out} {'line' if left_out == 1 else 'lines'} left out: not known to be free of rows' values)"


__all__ = ["gather", "shown"]
