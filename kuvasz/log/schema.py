"""The JSON Schema of a line of the log, made of the events and their facts."""

from __future__ import annotations

import logging
from typing import Any

from kuvasz.events import Event
from kuvasz.log.facts import FACTS


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a line of JSON.

    Later versions may have more events and more facts: whoever reads a line passes over what he does not know.
    """
    levels = sorted({event.level for event in Event})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of kuvasz's log",
        "type": "object",
        "required": ["at", "level", "message", "event"],
        "properties": {
            "at": {"type": "string", "format": "date-time", "description": "when, in UTC, with microseconds"},
            "level": {"enum": [logging.getLevelName(level).lower() for level in levels]},
            "message": {"enum": list(dict.fromkeys(event.message for event in Event))},
            "event": {"enum": list(dict.fromkeys(event.code for event in Event))},
            "traceback": {"type": "string", "description": "of a mistake of kuvasz's own"},
            **{
                name: {"type": [*fact.kind.split("|"), "null"], "description": fact.meaning}
                for name, fact in sorted(FACTS.items())
            },
        },
    }


__all__ = ["schema"]
