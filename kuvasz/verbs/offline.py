"""Commands given while no kuvasz runs: noted in the state folder, where the next start finds them."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from kuvasz.admin.commands import Selection
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.state.notes import Note, NoteFile
from kuvasz.state.ownership import Ownership
from kuvasz.state.tables import TableState

if TYPE_CHECKING:
    from kuvasz.config.model import Config

#: A start tries everything again by itself, so `retry` has nothing to note.
VERBS = ("pause", "resume", "resync")


def command(config: Config, verb: str, *, table: str | None, sid: str | None) -> dict[str, Any]:
    """Note a command for the next start; answers as a running kuvasz does.

    Raises:
        ConfigError: The map has no such table.
        StateTaken: A kuvasz runs after all: it does not answer yet, or somewhere else than the configuration says.
        StateError: The state folder cannot be read or written.
    """
    wanted = Selection(table=table, sid=sid)
    with Ownership(config.pipeline.state_folder, f"notes a {verb} in it"):
        return _note(config, verb, wanted)


def _note(config: Config, verb: str, wanted: Selection) -> dict[str, Any]:
    file = NoteFile(config.pipeline.state_folder)
    notes = file.load()
    tables = []
    for source in config_sources.resolve(config):
        for spec in source.tables:
            known = TableState(target=spec.identifier, source=source.name, table=str(spec.table))
            if wanted.has(known, source.sid):
                key = (spec.identifier, source.name)
                notes[key] = _noted(notes.get(key, Note()), verb)
                tables.append({"source": source.name, "target": spec.identifier})
    if not tables:
        raise ConfigError(f"the map has no {wanted.describe()}", hint="`kuvasz plan` lists the tables")
    file.save(notes)
    return {"verb": verb, "tables": tables, "is_noted": True}


def _noted(note: Note, verb: str) -> Note:
    if verb == "resync":
        return dataclasses.replace(note, is_resync_due=True)
    return dataclasses.replace(note, paused_at=time.time() if verb == "pause" else None)


__all__ = ["VERBS", "command"]
