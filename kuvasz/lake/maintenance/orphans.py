"""Files that a killed kuvasz, or a commit that nobody knows of, left behind: found and removed once a day.

Only files with kuvasz's own names in the table's own data folder are ever looked at, and of these only such as no
snapshot knows, nothing of this process is about to commit, no copy that was cut off goes on from, and that are older
than any write takes. Where another table lives in the folder they may be its files, and all of them stay.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kuvasz import failpoints
from kuvasz.errors import LakeError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.copies.resumption import paths_in
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.maintenance.folder_mates import other_metadata
from kuvasz.lake.table.table import LakeTable

_log = EventLog(__name__)

#: Of every file that kuvasz writes into a table's data folder.
_PREFIX = "kvsz-"

_EVERY_S = 86_400.0

_APART = "give each table a folder of its own, or drop the one that is no longer needed"

#: Seconds to wait for a table's lock: a stream that cannot commit holds it until it can.
_LOCK_S = 30.0


class Busy(LakeError):
    """A table's commits take too long to be waited for: its catalog or store may be down."""


@contextlib.contextmanager
def held(table: LakeTable) -> Iterator[None]:
    """Hold a table's lock.

    Raises:
        Busy: The stream keeps it for very long.
    """
    if not table.lock.acquire(timeout=_LOCK_S):
        message = f"{place_of(table=table.name)}: its stream did not get a commit through within {_LOCK_S:g} s"
        raise Busy(message, hint="see the log for why commits are tried again")
    try:
        yield
    finally:
        table.lock.release()


class Orphans:
    """Orphans of the tables of one lake.

    Args:
        catalog: Where the tables are.
        age_s: Younger files may still be on their way into a commit.
        file: Remembers when each table was looked at.
        parts_of: Returns what is noted of finished parts of copies of a table, see `kuvasz.ports.CopyLedger.note`.
    """

    def __init__(
        self,
        catalog: Catalog,
        age_s: float,
        file: Path,
        parts_of: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self._catalog = catalog
        self._age_s = age_s
        self._file = file
        self._parts_of = parts_of
        self._looked: dict[str, float] = _read(file)

    def visit(self, table: LakeTable) -> None:
        """Remove a table's orphans if that was not done for a day.

        Raises:
            LakeError: Catalog or store failed.
        """
        if table.commits.copies or time.time() - self._looked.get(table.definition.uuid, 0.0) < _EVERY_S:
            return  # while it is copied nothing can be said, and the day is not over for that
        self.remove(table, self._age_s)
        self._looked[table.definition.uuid] = time.time()
        with contextlib.suppress(OSError):  # the next start looks once more
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._looked), encoding="utf-8")

    def remove(self, table: LakeTable, age_s: float) -> list[str]:
        """Remove the orphans that are older than `age_s` seconds; returns their paths.

        Raises:
            LakeError: Catalog or store failed; nothing was removed.
        """
        if table.commits.copies:
            return []  # what a copy has written is known to it alone, and it may take days
        # A copy that begins from now on knows of no more files than this: its process adds what it writes itself.
        finished = {path.rpartition("/")[2] for text in self._parts_of(table.name) for path in paths_in(text)}
        oldest = time.time() - age_s
        folder = f"{table.definition.location}/data/"
        listed = {}
        # First what is there, then what is known: what is committed in between is known.
        for path, changed_at in table.table.list_data():
            name = path.rpartition("/")[2]
            if name.startswith(_PREFIX) and changed_at < oldest and path.rstrip("/").endswith(f"/data/{name}"):
                listed[name] = f"{folder}{name}"
        listed = {name: path for name, path in listed.items() if name not in finished}
        unknown = listed.keys() - self._catalog.known_files(table.name) if listed else set()
        if not unknown:
            return []
        with held(table):
            waiting = {*table.commits.in_flight, *(entry.path for entry in table.index.files)}
            for pending in table.open.values():
                waiting.update(pending.changeset.paths())
        orphans = sorted({listed[name] for name in unknown} - waiting)
        if orphans and (theirs := other_metadata(table, self._catalog, oldest)) is not None:
            _log.tell(Event.ORPHANS_LEFT, table=table.name, files=len(orphans), file=theirs, hint=_APART)
            return []
        failpoints.hit("before_orphans", LakeError)
        table.definition.remove(orphans)
        if orphans:
            _log.tell(Event.ORPHANS_REMOVED, table=table.name, files=len(orphans))
        return orphans


def _read(file: Path) -> dict[str, float]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): float(at) for name, at in found.items()} if isinstance(found, dict) else {}
