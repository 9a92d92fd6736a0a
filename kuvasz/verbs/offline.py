"""Commands given while no kuvasz runs: noted in the state store, where the next start finds them."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from kuvasz.admin.commands import Selection
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.state.ports import Note, NoteStore, TableKey
from kuvasz.state.store import state_of
from kuvasz.state.tables import TableState

if TYPE_CHECKING:
    from kuvasz.config.model import Config

#: A start tries everything again by itself, so `retry` has nothing to note.
VERBS = ("pause", "resume", "resync")


def command(
    config: Config, verb: str, *, table: str | None, sid: str | None, database: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Note a command for the next start; answers as a running kuvasz does.

    Raises:
        ConfigError: The map has no such table, or no kuvasz has ever run with its state folder.
        StateTaken: A kuvasz runs after all: it does not answer yet, or somewhere else than the configuration says.
        StateError: The state folder cannot be read or written.
    """
    wanted, store = Selection(table=table, sid=sid, database=database), state_of(config)
    if not store.is_there:
        raise ConfigError(
            f"no kuvasz has run with this map: there is no state folder {store.place}",
            hint="name the map, and what else says where its state is, as for the start; for a first start leave the"
            " table out of the map",
        )
    with store.own(f"notes a {verb} in it"):
        return _note(config, store.notes, verb, wanted)


def _note(config: Config, store: NoteStore, verb: str, wanted: Selection) -> dict[str, Any]:
    known, notes = store.all(), dict[TableKey, Note]()
    tables = []
    for source in config_sources.resolve(config):
        for spec in source.tables:
            state = TableState(target=spec.identifier, source=source.name, table=str(spec.table))
            if wanted.has(state, source.sid, source.database):
                key = (spec.identifier, source.name)
                notes[key] = _noted(known.get(key, Note()), verb)
                tables.append({"source": source.name, "target": spec.identifier})
    if not tables:
        raise ConfigError(f"the map has no {wanted.describe()}", hint="`kuvasz plan` lists the tables")
    store.put(notes)
    return {"verb": verb, "tables": tables, "is_noted": True}


def _noted(note: Note, verb: str) -> Note:
    if verb == "resync":
        return dataclasses.replace(note, is_resync_due=True)
    return dataclasses.replace(note, paused_at=time.time() if verb == "pause" else None)


__all__ = ["VERBS", "command"]
