"""The events of the log as docs/events.md lists them, from the enum.

`python -m tests.support.event_list` writes them into the page.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from kuvasz.events import Event
from tests.support import generated

PAGE = generated.DOCS / "events.md"


def table() -> str:
    """Return what is printed as a table: one row per event, the first of a code with it."""
    return generated.part(
        "events", "tests.support.event_list", generated.table(("event", "level", "message"), _rows())
    )


def _rows() -> Iterator[tuple[str, str, str]]:
    for code, events in itertools.groupby(Event, key=lambda event: event.code):
        for number, event in enumerate(events):
            yield (f"`{code}`" if number == 0 else "", logging.getLevelName(event.level).lower(), event.message)


if __name__ == "__main__":
    generated.write(PAGE.name, "events", table())
