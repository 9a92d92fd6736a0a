"""The second stage of a mini-transaction: per target, earlier versions are found and one Iceberg commit shows it."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from kuvasz.errors import (
    ForeignChange,
    InternalError,
    KuvaszError,
    TableStuck,
    place_of,
)
from kuvasz.events import EventLog
from kuvasz.lake.commit import chunks, lanes
from kuvasz.lake.commit.bundles import Bundle
from kuvasz.lake.commit.clone import CloneWriter
from kuvasz.lake.commit.failures import bug, came_of, drop, stop, unkept
from kuvasz.lake.commit.group_commit import GroupCommits, pending
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.commit.lanes import Lanes, Outcome, Ticket
from kuvasz.lake.executors import refused_rows
from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.files.snapshot_origin import SnapshotOrigin
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition, TableType, Truncation
from kuvasz.ports import Failure, Pending, Receipt

if TYPE_CHECKING:
    from kuvasz.lake.commit.bundles import Step
    from kuvasz.lake.commit.written import Written, WrittenTable
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.format.binding import Feeds
    from kuvasz.lake.jvm.joint.joint_commit import JointCommit
    from kuvasz.lake.table.table import LakeTable

_log = EventLog(__name__)

T = TypeVar("T")

#: Attempts at a commit that meets another writer's before the table stops.
_CONFLICT_ATTEMPTS = 5


class CommitStage:
    """Commits what was written; a table that fails fails alone. Safe from any thread.

    Args:
        jobs: Where rows that need others of the lake are written.
        answer: Raises a `KuvaszError` if catalog or store do not answer for any table.
        room_bytes: See `Lanes`.
        tables: Every prepared table by its name.
        feeds: What feeds them.
        properties: The properties of the FileIO.
        state: The folder with the indexes.
        tells: Whether snapshots say how they came about; see `kuvasz.lake.files.snapshot_origin`.
        joint: Returns what shows commits of several tables at once; None where no tables have a group.
        keep_rejected: See `kuvasz.ports.About.keep_rejected`.
    """

    def __init__(  # noqa: PLR0913 (the neighbours of a stage are its parameters)
        self,
        jobs: Jobs,
        answer: Callable[[], None],
        room_bytes: int,
        tables: Mapping[str, LakeTable],
        feeds: Feeds,
        properties: Mapping[str, str],
        state: Path,
        *,
        tells: bool = False,
        joint: Callable[[], JointCommit] | None = None,
        keep_rejected: Callable[[str, pa.Table], None] = lambda *_: None,
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._feeds = feeds
        self._properties = properties
        self._state = state
        self._tells = tells
        self._keep_rejected = keep_rejected
        self._lanes = Lanes(self._commit, self._hangs, answer, room_bytes)
        self._groups = GroupCommits(
            tables, joint, state, retried=self._lanes.tried_again, resolve=self._resolve,
            tell_origin=self._tell_origin, note_conflict=self._note_conflict,
        )  # fmt: skip
        self._lock = threading.Lock()
        self.conflicts = 0  #: commits made again because another writer was faster

    def close(self) -> None:
        """Try nothing again any more."""
        self._lanes.close()
        self._groups.close()

    def commit(self, written: Written) -> list[Receipt | Failure | Pending]:
        """See `kuvasz.ports.Lake.commit`."""
        outcomes: list[Receipt | Failure | Pending] = []
        tickets = self._tickets(written)
        self._lanes.put(tickets)
        for ticket in tickets:
            if not ticket.outcome.done():
                outcomes += pending(ticket)
            else:
                outcomes += ticket.outcome.result()
        return outcomes

    def _tickets(self, written: Written) -> list[Ticket]:
        """Return one ticket for each table that is committed on its own, and for each group."""
        groups: dict[str, list[WrittenTable]] = {}
        tickets = []
        for one in written.tables:
            group = self._tables[one.work.target].target.group
            if group is None:
                tickets.append(Ticket(one))
            else:
                groups.setdefault(group, []).append(one)
        return tickets + [Ticket(*tables, group=group) for group, tables in groups.items()]

    def _hangs(self, ticket: Ticket) -> KuvaszError:
        """Give up a commit of which nobody knows when it returns; see `Lanes`."""
        place = place_of(table=ticket.target)
        message = f"{place}: catalog or store have not answered a commit for {lanes.BOUND_S:g} s"
        error = TableStuck(message, hint="see what they wait for; it is tried again, and other tables go on")
        # Without the lock, which that commit holds. If it is made in the end, the table's position says so.
        for one in ticket.all:
            self._tables[one.work.target].era = WriteEra(accepted={}, error=error)
        return error

    def _commit(self, tickets: Sequence[Ticket]) -> Sequence[Outcome]:
        """Commit the first of a table's mini-transactions, and at once with it those that can be; see `Lanes`."""
        if tickets[0].group is not None:
            return [self._groups.commit(tickets[0])]
        table = self._tables[tickets[0].target]
        with lanes.patiently(table.lock, tickets[0]):
            together = _together(table, tickets)
            try:
                if table.era is together[0].written.era and table.era.error is None:
                    return self._commit_together(table, together)
                drop(table, [ticket.written for ticket in together])
                return [()] * len(together)
            finally:
                table.commits.in_flight.difference_update(_paths(together))

    def _commit_together(self, table: LakeTable, together: Sequence[Ticket]) -> Sequence[Outcome]:
        changeset = Changeset()
        try:
            for ticket in together:
                ticket.written.begin(table)
            had_open = bool(table.open)
            for attempt in range(_CONFLICT_ATTEMPTS):
                try:
                    return self._apply(table, together, changeset)
                except ForeignChange:
                    self._note_conflict()
                    # Parts of an open transaction cannot be resolved again: their keys are gone by now.
                    if attempt == _CONFLICT_ATTEMPTS - 1 or had_open or table.open:
                        raise
                    table.commits.discard(changeset, keep=_paths(together))
                    changeset = Changeset()
                    table.index.reset()
                    table.table.refresh()
            raise InternalError("unreachable")
        except KuvaszError as error:
            return self._failed(table, together, changeset, error)
        except OSError as error:
            return self._failed(table, together, changeset, unkept(table, self._state, error))
        except Exception as error:  # noqa: BLE001 (the table stops, not the process)
            return self._failed(table, together, changeset, bug(table, error))

    def _failed(
        self, table: LakeTable, together: Sequence[Ticket], changeset: Changeset, error: KuvaszError
    ) -> Sequence[Outcome]:
        return [stop(table, [one.written for one in together], changeset, error), *[()] * (len(together) - 1)]

    def _note_conflict(self) -> None:
        with self._lock:
            self.conflicts += 1

    def _apply(self, table: LakeTable, together: Sequence[Ticket], changeset: Changeset) -> Sequence[Outcome]:
        head = together[0]
        self._retried(table, head, table.follow)
        table.open.check()
        reached: list[dict[str, SourcePosition]] = []
        positions: dict[str, SourcePosition] = {}
        for ticket in together:
            written = ticket.written
            self._resolve(table, written, changeset)
            reached.append(chunks.reached(written.cut, written.work.through, {**table.positions, **positions}))
            positions.update(reached[-1])
        begin = time.monotonic()
        self._tell_origin(changeset, head.written, begin)
        snapshot_id = self._retried(table, head, lambda: table.commits.make(changeset, positions))
        seconds = time.monotonic() - begin
        return [
            came_of(
                ticket.written,
                positions,
                snapshot_id,
                seconds,
                changeset.rejected if ticket is head else {},
                is_first=ticket is head,
            )
            for ticket, positions in zip(together, reached, strict=True)
        ]

    def _retried(self, table: LakeTable, ticket: Ticket, step: Callable[[], T]) -> T:
        """Catalog and storage may fail for a while: the work is kept and the step tried until it is given up."""
        with table.lock.doubtful():
            return self._lanes.tried_again(ticket, step)

    def _tell_origin(self, changeset: Changeset, written: WrittenTable, begin: float) -> None:
        if self._tells:
            origin = SnapshotOrigin(
                by=snapshot_origin.STREAM,
                operations=changeset.operations,
                writing_s=written.seconds,
                waiting_s=begin - written.written_at,
            )
            changeset.summary |= origin.entry()

    def _resolve(self, table: LakeTable, written: WrittenTable, changeset: Changeset) -> None:
        kind = HistoryWriter if table.target.type is TableType.HISTORY else CloneWriter
        writer = kind(table.rows, self._jobs, of_table(self._properties, table.definition.location), changeset)
        for step, result in zip(written.steps, written.results, strict=True):
            writer.apply(step, result, self._sid_of(table, step))
            if self._tells and not isinstance(result, Truncation):
                pending = table.open.get(step.source)
                layer = changeset if pending is None else pending.changeset
                for counted in result.operations:
                    layer.operations = layer.operations.plus(counted)
        writer.conclude(written.work.through.keys() - written.work.open_sources)
        for source, newest in written.cut.newest_us.items():
            changeset.newest_us[source] = max(changeset.newest_us.get(source, 0), newest)
        late = writer.rejected if isinstance(writer, CloneWriter) else []
        self._note_rejected(table, changeset, [*written.rejected(), *late])

    def _note_rejected(self, table: LakeTable, changeset: Changeset, found: Sequence[bytes]) -> None:
        """Have what does not fit written down before a position passes it; what is large, a portion at a time."""
        for some in refused_rows.portions(found, changeset.rejected):
            changeset.first.append(functools.partial(self._keep, table.name, some))
        for source in sorted(changeset.rejected):
            if table.definition.is_growing or table.columns.shapes.target_of(source).keeps_earlier:
                changeset.first.append(functools.partial(table.columns.rules.lack, source))

    def _keep(self, target: str, some: Sequence[bytes]) -> None:
        self._keep_rejected(target, pa.concat_tables(map(refused_rows.unpacked, some)))

    def _sid_of(self, table: LakeTable, step: Step) -> str | None:
        if isinstance(step, Bundle) or not table.target.has_sid:
            return None
        return self._feeds.find(table.name, step.source, step.relation).sid


def _together(table: LakeTable, tickets: Sequence[Ticket]) -> list[Ticket]:
    """Return the first mini-transaction and those behind it that can be in one commit with it."""
    era = tickets[0].written.era
    first = [*itertools.takewhile(lambda ticket: ticket.written.era is era and _is_plain(ticket.written), tickets)]
    return first if first and not table.open else [tickets[0]]


def _is_plain(written: WrittenTable) -> bool:
    """Whether it is of whole transactions and nothing of it has failed."""
    work = written.work
    return written.error is None and not (written.refused or work.open_sources or work.abandoned)


def _paths(tickets: Sequence[Ticket]) -> list[str]:
    return [path for ticket in tickets for path in ticket.written.paths()]


__all__ = ["CommitStage"]
