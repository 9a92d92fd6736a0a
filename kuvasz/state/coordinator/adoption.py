"""What a process remembered before it was one of a cluster, brought to the coordinator at the cluster's first start.

What was brought is set aside in the state folder: who leaves the cluster later begins without, which each part of the
state store has a meaning for; an old note that is found again has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.errors import StateError, unreadable
from kuvasz.events import Event, EventLog
from kuvasz.model import SourcePosition
from kuvasz.state import feed_file, note_file, relation_files, source_record_file, witness_files
from kuvasz.state.folder import StateFolder
from kuvasz.state.notices import notice_file
from kuvasz.state.numbers import number_file
from kuvasz.state.verdicts import verdict_file

if TYPE_CHECKING:
    from kuvasz.state.ports import StateStore

_log = EventLog(__name__)

#: In the state folder.
ASIDE: Final = "before-cluster"

_PARTS: Final = (
    note_file.FILE, feed_file.FILE, number_file.FILE, relation_files.FOLDER, source_record_file.FOLDER,
    verdict_file.FILE, notice_file.FILE, witness_files.FOLDER,
)  # fmt: skip


def adopt(folder: Path, store: StateStore) -> None:
    """Bring what a state folder has to a store in which nothing is yet, and set it aside.

    Raises:
        StateError: It cannot be read, or not be brought.
    """
    parts = [folder / name for name in _PARTS if (folder / name).exists()]
    if not parts:
        return
    before = StateFolder(folder)
    store.notes.put(before.notes.all())
    store.feeds.keep(before.feeds.known(), before.feeds.sids())
    store.feeds.see(before.feeds.seen())
    store.numbers.bring(before.numbers.all())
    store.verdicts.put(before.verdicts.all())
    for name, told in before.notices.all().items():
        store.notices.put(name, told)
    for source in _sources(folder / source_record_file.FOLDER):
        record = store.record(source)
        record.update(before.record(source).standing)
        record.close()
    for source in _sources(folder / relation_files.FOLDER):
        store.files(source).put(before.files(source).all())
    for table in _tables(folder / witness_files.FOLDER):
        store.witness.note(table, before.witness.known(table))
        for source, given in before.witness.given_up(table).items():
            store.witness.give_up(table, source, SourcePosition(lsn=given.lsn, history=given.history))
    _set_aside(folder, parts)
    _log.tell(Event.STATE_ADOPTED, folder=str(folder), into=store.place)


def _sources(folder: Path) -> Iterator[str]:
    yield from sorted(file.stem for file in folder.glob("*.json"))


def _tables(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.json")):
        try:
            yield str(json.loads(file.read_text(encoding="utf-8"))["table"])
        except (ValueError, KeyError, TypeError):  # no witness, as ever
            continue
        except OSError as error:
            raise unreadable(file, error) from error


def _set_aside(folder: Path, parts: list[Path]) -> None:
    try:
        (folder / ASIDE).mkdir(mode=0o700, exist_ok=True)
        for part in parts:
            part.rename(folder / ASIDE / part.name)
    except OSError as error:
        raise StateError(
            f"{folder} cannot be written: {(error.strerror or str(error)).lower()}",
            hint=f"move {', '.join(part.name for part in parts)} out of it: the coordinator has what is in them",
        ) from error


__all__ = ["ASIDE", "adopt"]
