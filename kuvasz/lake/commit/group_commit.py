"""Commits of groups: a mini-transaction becomes visible in all tables of its group at once, or in none.

Each table takes its part as it would alone: it follows others' commits, resolves, and has delete files written. Then
all parts are written upon what the catalog has (`IcebergTable.stage`), and shown together (`JointCommit.swap`). What
another writer changed meanwhile is written anew upon that. A table that fails, or had failed, is left out and stops;
the others go on, and it is in step with them again when it follows again.

All locks of the tables are held from the first look to the last, in the order of their names.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, KuvaszError, LakeError, LateCommit, OutcomeUnknown, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.failures import bug, came_of, drop, stop, unkept
from kuvasz.lake.commit.lanes import Outcome, Ticket, patiently
from kuvasz.lake.files.files import Changeset
from kuvasz.model import SourcePosition
from kuvasz.ports import Pending

if TYPE_CHECKING:
    from kuvasz.lake.commit.written import WrittenTable
    from kuvasz.lake.files.files import Sent
    from kuvasz.lake.jvm.joint.joint_commit import JointCommit, StagedCommit
    from kuvasz.lake.table.table import LakeTable

_log = EventLog(__name__)

#: Attempts at a commit that meets another writer's before the table, or this attempt of the group, fails.
_CONFLICT_ATTEMPTS = 5

#: Tables of a group that are worked on side by side. It is mostly waiting; see `Lanes`.
_TURNS = 4


class GroupPart:
    """One table's part in a commit of its group.

    Args:
        table: The table, whose lock is held.
        written: What is committed.
    """

    def __init__(self, table: LakeTable, written: WrittenTable) -> None:
        self.table = table
        self.written = written
        self.changeset = Changeset()
        self.positions: Mapping[str, SourcePosition] = {}
        self.sent: Sent | None = None
        self.staged: StagedCommit | None = None
        self.has_followed = False
        self.is_resolved = False
        self.conflicts = 0
        self.outcome: Outcome | None = None  #: once nothing more is done with it

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be shown: it is there, or changes nothing."""
        return self.is_resolved and (self.sent is None or self.changeset.is_there)

    def begin_anew(self) -> None:
        """Undo what was worked out upon what another writer has changed."""
        table = self.table
        table.commits.discard(self.changeset, keep=self.written.paths())
        self.changeset, self.sent = Changeset(), None
        self.has_followed = self.is_resolved = False
        table.index.reset()
        table.table.refresh()


class GroupCommits:
    """Commits groups. Safe from any thread; one group's commits come one after another.

    Args:
        tables: Every prepared table by its name.
        joint: Returns what shows commits of several tables at once; None where no tables have a group.
        state: The folder with the indexes.
        retried: See `Lanes.tried_again`.
        resolve: Works a table's rows out into a changeset.
        tell_origin: Has a changeset say how its snapshot came about.
        note_conflict: Counts a commit that met another writer's.
    """

    def __init__(
        self,
        tables: Mapping[str, LakeTable],
        joint: Callable[[], JointCommit] | None,
        state: Path,
        *,
        retried: Callable[[Ticket, Callable[[], None]], None],
        resolve: Callable[[LakeTable, WrittenTable, Changeset], None],
        tell_origin: Callable[[Changeset, WrittenTable, float], None],
        note_conflict: Callable[[], None],
    ) -> None:
        self._tables = tables
        self._joint = joint
        self._state = state
        self._retried = retried
        self._resolve = resolve
        self._tell_origin = tell_origin
        self._note_conflict = note_conflict
        # One a group, whose commits come one after another: what hangs in one keeps no other group waiting.
        self._pools: dict[str | None, concurrent.futures.ThreadPoolExecutor] = {}

    def close(self) -> None:
        """Begin nothing any more."""
        for pool in tuple(self._pools.values()):
            pool.shutdown(wait=False)

    def commit(self, ticket: Ticket) -> Outcome:
        """Commit a group's mini-transaction; see `Lanes`."""
        written = sorted(ticket.all, key=lambda one: one.work.target)
        parts = [GroupPart(self._tables[one.work.target], one) for one in written]
        with contextlib.ExitStack() as held:
            for part in parts:
                held.enter_context(patiently(part.table.lock, ticket))
            try:
                for part in parts:
                    self._begin(part)
                begin = time.monotonic()
                self._show(ticket, parts, begin)
                seconds = time.monotonic() - begin
                for part in _going_on(parts):
                    snapshot_id = None if part.sent is None else part.table.index.snapshot_id
                    part.outcome = came_of(
                        part.written, part.positions, snapshot_id, seconds, part.changeset.rejected
                    )
            finally:
                for part in parts:
                    part.table.commits.in_flight.difference_update(part.written.paths())
        return tuple(one for part in parts for one in part.outcome or ())

    def _begin(self, part: GroupPart) -> None:
        table, written = part.table, part.written
        if table.era is not written.era or table.era.error is not None:
            drop(table, [written])
            part.outcome = ()
            return
        with self._failing(part):
            written.begin(table)

    def _show(self, ticket: Ticket, parts: Sequence[GroupPart], begin: float) -> None:
        """Bring all parts there that do not fail; whatever fails for all of them fails each."""
        try:
            with contextlib.ExitStack() as doubtful:
                for part in parts:
                    doubtful.enter_context(part.table.lock.doubtful())
                self._retried(ticket, lambda: self._attempt(parts, begin))
        except KuvaszError as error:
            for part in _going_on(parts):
                part.outcome = stop(part.table, [part.written], part.changeset, error)

    def _attempt(self, parts: Sequence[GroupPart], begin: float) -> None:
        """Work out what is not worked out yet, and show all of it.

        Raises:
            LakeError: Catalog or store failed, or others change the tables all the time: it may be tried again.
        """
        for _ in range(_CONFLICT_ATTEMPTS):
            self._each(_going_on(parts), lambda part: self._work_out(part, begin))
            waiting = [part for part in _going_on(parts) if not part.is_done]
            if not waiting or self._swap(waiting):
                return
        place = place_of(table=parts[0].table.name)
        message = f"{place}: other writers change tables of its group all the time"
        raise LakeError(message, hint="see who writes them; it is tried again")

    def _work_out(self, part: GroupPart, begin: float) -> None:
        """Have a part ready to be shown, as far as it is not.

        Raises:
            LakeError: Catalog or store failed; the same may be tried again.
        """
        table = part.table
        with self._failing(part, but=LakeError):
            if not part.has_followed:
                table.follow()
                part.has_followed = True
        if part.outcome is None and not part.is_resolved:
            with self._failing(part):
                table.open.check()
                self._resolve(table, part.written, part.changeset)
                cut, work = part.written.cut, part.written.work
                part.positions = chunks.reached(cut, work.through, table.positions)
                self._tell_origin(part.changeset, part.written, begin)
                part.is_resolved = True
        if part.outcome is None and part.staged is None:
            with self._failing(part, but=LakeError):
                self._stage(part)

    def _stage(self, part: GroupPart) -> None:
        table, had_open = part.table, bool(part.table.open) or bool(part.written.work.open_sources)
        part.sent = table.commits.prepare(part.changeset, part.positions)
        if part.sent is None or part.changeset.is_there:
            return
        assert self._joint is not None
        try:
            part.staged = table.table.stage(part.sent.commit, self._joint())
        except ForeignChange:
            if _has_come(part):
                return
            self._note_conflict()
            part.conflicts += 1
            # Parts of an open transaction cannot be resolved again: their keys are gone by now.
            if part.conflicts == _CONFLICT_ATTEMPTS or had_open:
                raise
            part.begin_anew()

    def _swap(self, parts: Sequence[GroupPart]) -> bool:
        """Show parts that are ready; returns whether they are there: else some have to be written anew."""
        ready = [part for part in parts if part.staged is not None]
        if len(ready) < len(parts):
            return False
        assert self._joint is not None
        joint = self._joint()
        staged = [part.staged for part in ready if part.staged is not None]
        try:
            failpoints.hit("before_commit", LakeError)
            moved = joint.swap(staged)
            failpoints.hit("after_commit", OutcomeUnknown)
        except LakeError as error:
            self._let_go(ready, joint, is_known=not isinstance(error, OutcomeUnknown))
            if self._are_there(ready):
                return True
            raise
        except ForeignChange:  # a catalog that does not say whose it was
            moved = [part.table.name for part in ready]
        if moved:
            self._note_conflict()
            self._let_go([part for part in ready if part.table.name in moved], joint, is_known=True)
            return False
        self._each(ready, lambda part: self._shown(part, joint))
        return True

    def _are_there(self, parts: Sequence[GroupPart]) -> bool:
        """Look whether a commit of which nobody knows is there; that it is in part is told of, and made good."""
        left: Sequence[GroupPart] = parts
        for _ in range(2):  # it may have come between the looks at one table and at the next
            self._each(left, self._look_up)
            left = [part for part in _going_on(parts) if not part.changeset.is_there]
            if not left or len(left) == len(_going_on(parts)):
                break
        else:
            group, names = parts[0].table.target.group, sorted(part.table.name for part in left)
            _log.tell(Event.GROUP_TORN, group=group, tables=names)
        return not left

    def _look_up(self, part: GroupPart) -> None:
        """Find out whether a commit is there of which no answer came."""
        with self._failing(part, but=LakeError):
            part.table.commits.prepare(part.changeset, part.positions)

    def _shown(self, part: GroupPart, joint: JointCommit) -> None:
        assert part.staged is not None
        assert part.sent is not None
        joint.tidy(part.staged)
        part.staged = None
        with self._failing(part, but=LakeError):
            part.table.commits.shown(part.changeset, part.sent, part.positions)

    def _let_go(self, parts: Iterable[GroupPart], joint: JointCommit, *, is_known: bool) -> None:
        """Forget what was written to show commits, and remove it if it is not shown for sure."""
        for part in parts:
            if part.staged is not None and is_known:
                joint.drop(part.staged)
            part.staged = None

    def _each(self, parts: Iterable[GroupPart], step: Callable[[GroupPart], None]) -> None:
        """Do a step for each part, side by side.

        Raises:
            LakeError: The first that one of them raised, when all have ended.
        """
        running = [self._pool(part.table.target.group).submit(step, part) for part in parts]
        concurrent.futures.wait(running)
        for one in running:
            one.result()

    def _pool(self, group: str | None) -> concurrent.futures.ThreadPoolExecutor:
        if group not in self._pools:
            self._pools[group] = concurrent.futures.ThreadPoolExecutor(_TURNS, thread_name_prefix="group")
        return self._pools[group]

    @contextlib.contextmanager
    def _failing(self, part: GroupPart, but: type[LakeError] | tuple[()] = ()) -> Iterator[None]:
        """Have a part stop its table with what is raised, except for what may be tried again."""
        try:
            yield
        except KuvaszError as error:
            if isinstance(error, but) and not isinstance(error, LateCommit):
                raise
            self._stop(part, error)
        except OSError as error:
            self._stop(part, unkept(part.table, self._state, error))
        except Exception as error:  # noqa: BLE001 (the table stops, not the process)
            self._stop(part, bug(part.table, error))

    def _stop(self, part: GroupPart, error: KuvaszError) -> None:
        if part.staged is not None and self._joint is not None:
            self._let_go([part], self._joint(), is_known=True)
        part.outcome = stop(part.table, [part.written], part.changeset, error)


def _has_come(part: GroupPart) -> bool:
    """Whether a commit that was refused is there: it was sent before, and nobody had seen it."""
    part.table.commits.prepare(part.changeset, part.positions)
    return part.changeset.is_there


def _going_on(parts: Iterable[GroupPart]) -> list[GroupPart]:
    return [part for part in parts if part.outcome is None]


def pending(ticket: Ticket) -> list[Pending]:
    """Return for each table of a commit what comes of it later."""
    if ticket.group is None:
        return [Pending(target=ticket.target, outcome=ticket.outcome)]
    return [Pending(target=one.work.target, outcome=_outcome_of(ticket, one.work.target)) for one in ticket.all]


def _outcome_of(ticket: Ticket, target: str) -> concurrent.futures.Future[Outcome]:
    found: concurrent.futures.Future[Outcome] = concurrent.futures.Future()

    def tell(done: concurrent.futures.Future[Outcome]) -> None:
        found.set_result(tuple(one for one in done.result() if one.target == target))

    ticket.outcome.add_done_callback(tell)
    return found


__all__ = ["GroupCommits", "pending"]
