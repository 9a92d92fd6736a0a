"""Commands given while no kuvasz runs: noted in the state store, where the next start finds them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from kuvasz.admin.commands import Selection
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.source import conninfo
from kuvasz.state.ports import Note, NoteStore, TableKey
from kuvasz.state.store import state_of
from kuvasz.state.tables import TableState
from kuvasz.sync.rules import members

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec

#: A start tries everything again by itself, so `retry` has nothing to note.
VERBS = ("pause", "resume", "resync")


def command(
    config: Config, verb: str, *, table: str | None, sid: str | None, database: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Note a command for the next start; answers as a running kuvasz does.

    Raises:
        ConfigError: The map has no such table, or no kuvasz has ever run with its state folder.
        SourceError: Nobody can say which tenants there are: their server does not answer.
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
    before = store.all()
    notes, tables = dict(before), list[dict[str, str]]()

    def note(keys: Iterable[TableKey]) -> None:
        notes.update({key: _noted(notes.get(key, Note()), verb) for key in keys})

    for source in config_sources.resolve(config):
        whole = [spec for spec in source.tables if _is_meant(wanted, source, spec)]
        for spec in whole:
            # What is noted of a member by itself outranks what is noted of all.
            note([(spec.identifier, source.name), *(key for key in before if _is_member(key, source, spec))])
            tables.append({"source": source.name, "target": spec.identifier})
        for spec in _tenants(source, notes, wanted) if not whole else ():
            note([(spec.identifier, source.name_of(spec))])
            tables.append({"source": source.name, "target": f"{spec.identifier} ({spec.tenant})"})
    if not tables:
        raise ConfigError(f"the map has no {wanted.describe()}", hint="`kuvasz plan` lists the tables")
    store.put({key: one for key, one in notes.items() if before.get(key) != one})
    return {"verb": verb, "tables": tables, "is_noted": True}


def _is_meant(wanted: Selection, source: Source, spec: SourceTableSpec) -> bool:
    """Whether a table is meant, with all of its members if it has some and is none."""
    state = TableState(target=spec.identifier, source=source.name_of(spec), table=str(spec.table))
    return wanted.has(state, source.sid, source.database)


def _is_member(key: TableKey, source: Source, spec: SourceTableSpec) -> bool:
    target, name = key
    return target == spec.identifier and names.source_of(name) == source.name and bool(names.member_of(name))


def _tenants(source: Source, notes: dict[TableKey, Note], wanted: Selection) -> list[SourceTableSpec]:
    """Return the tables of tenants that are meant; their server is asked which there are.

    What is noted of all tenants together is noted of each from then on.
    """
    if wanted.sid is None or all(spec.schemas is None for spec in source.tables):
        return []
    with contextlib.closing(conninfo.connect(source.url.get())) as connection:
        found = [spec for spec in members.found(source, connection).tables if spec.tenant is not None]
    meant = [spec for spec in found if _is_meant(wanted, source, spec)]
    for target in {spec.identifier for spec in meant}:
        if (of_all := notes.get((target, source.name), Note())) != Note():
            notes[target, source.name] = Note()
            for spec in found:
                if spec.identifier == target:
                    notes.setdefault((target, source.name_of(spec)), of_all)
    return meant


def _noted(note: Note, verb: str) -> Note:
    if verb == "resync":
        return dataclasses.replace(note, is_resync_due=True, is_repair=False)
    return dataclasses.replace(note, paused_at=time.time() if verb == "pause" else None)


__all__ = ["VERBS", "command"]
