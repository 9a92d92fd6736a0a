"""What the lake is told of kuvasz, and the thread that writes it, beside the way of any row.

Every `INTERVAL_S` each of the tables gets one commit at most, and those of which nothing is lost by waiting every
third time: a commit is most of what they cost. An event that is no warning waits as well. What cannot be written
waits, in bounded memory; what finds no room there is counted and told. The table of commits is told nothing: it is
read off the snapshots of the lake's tables (`kuvasz.lake.about.commits`).
"""

from __future__ import annotations

import datetime
import itertools
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import override

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, InternalError, LakeError, TableGone, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.about import commits
from kuvasz.lake.about.joint_writing import JointWriting
from kuvasz.lake.about.rows import Row, WaitingRows
from kuvasz.lake.about.tables import COMMITS, EVENTS, REJECTS, SOURCES, TABLES
from kuvasz.lake.about.writer import AboutWriter
from kuvasz.lake.table.notes import SEEN_PREFIX
from kuvasz.ports import About

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kuvasz.lake.about.tables import AboutTable
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.ports import Receipt

_log = EventLog(__name__)

#: Between two commits of one of the tables.
INTERVAL_S = 10.0

#: Of these not each time: snapshots are there to be read, the last row of a source is what counts, and the log has
#: what a kill takes of the events.
_EVERY = {COMMITS: 3, EVENTS: 3, SOURCES: 3}

#: Severity of the events that do not wait for their turn.
_URGENT = frozenset({"warning", "error", "critical"})

#: Seconds that the last ones get when kuvasz stops.
_STOP_S = 5.0

#: Commits of which is remembered how long they took, until their rows are written.
_MOST_TOOK = 20_000


class LakeAbout(About):
    """See `kuvasz.ports.About`.

    Args:
        namespace: Where the tables are; None: nowhere, and nothing is done.
        keep_s: How old their rows get.
        targets: The tables of the lake whose commits are told of, by name; they come and go.
    """

    def __init__(self, namespace: str | None, keep_s: float, targets: Mapping[str, LakeTable]) -> None:
        self.namespace = namespace
        self._keep_s = keep_s
        self._targets = targets
        self._waiting = WaitingRows()
        self._took: dict[int, float] = {}  #: snapshot -> seconds of its commit
        self._looked: dict[str, object] = {}  #: target -> what it was like when it was looked at last
        self._told: dict[str, str] = {}  #: table -> what was said last of why it cannot be written
        self._writers: tuple[AboutWriter, ...] = ()
        self._keeping = threading.Lock()  #: whoever comes first loads a table
        self._rejected = JointWriting(self._keep)  #: tables that reject at the same time need one commit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="about", daemon=True)

    @override
    def tell(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        """See `kuvasz.ports.About.tell`."""
        if self.namespace is not None:
            self._waiting.add(table, rows)

    @override
    def write(self, table: str) -> None:
        """See `kuvasz.ports.About.write`."""
        for writer in self._writers:
            if writer.about.name == table:
                self._do(writer, lambda writer=writer: self._write(writer))  # type: ignore[misc]

    @override
    def committed(self, receipt: Receipt) -> None:
        """See `kuvasz.ports.About.committed`."""
        if self.namespace is not None and receipt.snapshot_id is not None:
            if len(self._took) >= _MOST_TOOK:
                self._took.clear()  # of some the rows were written before this came
            self._took[receipt.snapshot_id] = receipt.seconds

    @override
    def standing(self) -> Mapping[str, object]:
        """See `kuvasz.ports.About.standing`."""
        return {
            target.name: (target.definition.uuid, target.index.snapshot_id) for target in list(self._targets.values())
        }

    @override
    def commits_after(self, target: str, seen: str | None, most: int) -> tuple[list[Row], str, int]:
        """See `kuvasz.ports.About.commits_after`."""
        table = self._targets.get(target)
        if table is None:
            return [], seen or "", 0
        known = {} if seen is None else {SEEN_PREFIX + target: seen}
        before = commits.seen_of(known, target, table.definition.uuid)
        before, snapshots = commits.news(table.table.snapshots, before, most)
        rows, now = commits.rows_of(target, snapshots, before, self._took)
        missed = int(snapshots[0]["sequence-number"]) - before.sequence - 1 if snapshots and before.sequence else 0
        return rows, now.render(), missed

    @override
    def keep_rejected(self, target: str, rows: pa.Table) -> None:
        """See `kuvasz.ports.About.keep_rejected`."""
        if not self._writers:
            raise InternalError(f"{place_of(table=target)}: there is nowhere to keep rows that do not fit")
        at = pa.scalar(datetime.datetime.now(datetime.UTC), pa.timestamp("us", "UTC"))
        more = {"rejected_at": at, "target": pa.scalar(target)}
        for name, value in more.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        try:
            self._rejected.put(rows)
            failpoints.hit("rejects_kept", LakeError)
        except (ForeignChange, TableGone, OSError) as error:
            message = f"{place_of(table=target)}: rows that do not fit cannot be kept: {error}"
            raise LakeError(message, hint="it is tried again") from error

    def _keep(self, rows: pa.Table) -> None:
        writer = next(one for one in self._writers if one.about.name == REJECTS)
        with self._keeping, writer.held() as table:
            writer.write(table, rows, {}, datetime.datetime.now(datetime.UTC))

    # Its life

    def start(self, load: Callable[[AboutTable], LakeTable]) -> None:
        """Write from now on; whoever starts twice gets one thread.

        Args:
            load: Loads a table from the catalog, made if it is missing.
        """
        if self.namespace is not None and not self._writers:
            self._writers = tuple(AboutWriter(table, load, self._keep_s) for table in TABLES)
            self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end; a catalog that does not answer is not waited for."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def tables(self) -> list[LakeTable]:
        """Return the tables about the lake that are loaded, for who maintains them."""
        return [writer.loaded for writer in self._writers if writer.loaded is not None]

    # The thread

    def _loop(self) -> None:
        for number in itertools.count(1):
            if self._stop.wait(INTERVAL_S):
                break
            self._flush(number)
        self.flush()
        for writer in self._writers:
            self._do(writer, writer.close)

    def flush(self) -> None:
        """Write what waits, each table by itself."""
        self._flush(0)

    def _flush(self, number: int) -> None:
        for writer in self._writers:
            if number % _EVERY.get(writer.about.name, 1) == 0 or self._is_urgent(writer):
                self._do(writer, lambda writer=writer: self._write(writer))  # type: ignore[misc]

    def _is_urgent(self, writer: AboutWriter) -> bool:
        """Whether an event waits that somebody may have to act upon."""
        is_urgent = lambda row: row.get("severity") in _URGENT  # noqa: E731
        return writer.about.name == EVENTS and self._waiting.is_any(EVENTS, is_urgent)

    def _do(self, writer: AboutWriter, what: Callable[[], None]) -> None:
        """Do something with a table. Nothing that fails here may stop anything else."""
        name = writer.about.name
        try:
            what()
            self._told.pop(name, None)
        except Exception as error:  # noqa: BLE001 (as it says)
            if self._told.get(name) != str(error):
                self._told[name] = str(error)
                _log.tell(Event.ABOUT_FAILED, table=f"{self.namespace}.{name}", error=str(error) or repr(error))
        if lost := self._waiting.lost(name):
            _log.tell(Event.ABOUT_LOST, table=f"{self.namespace}.{name}", rows=lost)

    def _write(self, writer: AboutWriter) -> None:
        now = datetime.datetime.now(datetime.UTC)
        if writer.about.name == COMMITS:
            self._write_commits(writer, now)
            return
        rows = self._waiting.take(writer.about.name)
        try:
            with self._keeping:
                writer.open()  # who asks finds a table, be it empty
            if rows:
                with writer.held() as table:
                    writer.write(table, rows, {}, now)
        except BaseException:
            self._waiting.put_back(writer.about.name, rows)
            raise

    def _write_commits(self, writer: AboutWriter, now: datetime.datetime) -> None:
        """Write the rows of all snapshots that came since, with the note of which they are."""
        # Before the snapshots are looked at: one that comes meanwhile is found the next time.
        states = self.standing()
        changed = [name for name, standing in states.items() if self._looked.get(name) != standing]
        if not changed:
            return
        oldest = now - datetime.timedelta(seconds=self._keep_s)
        rows: list[Row] = []
        properties: dict[str, str] = {}
        with writer.held() as table:
            known = table.table.properties
            for target in map(self._targets.__getitem__, changed):
                seen = commits.seen_of(known, target.name, target.definition.uuid)
                before, snapshots = commits.news(target.table.snapshots, seen)
                found, now_seen = commits.rows_of(target.name, snapshots, before, self._took)
                rows += [row for row in found if row["committed_at"] >= oldest]  # type: ignore[operator]
                if now_seen != seen:
                    properties[SEEN_PREFIX + target.name] = now_seen.render()
            if rows:
                writer.write(table, rows, properties, now)
        self._looked |= states
        for row in rows:
            self._took.pop(row["snapshot_id"], None)  # type: ignore[call-overload]


__all__ = ["INTERVAL_S", "LakeAbout"]
