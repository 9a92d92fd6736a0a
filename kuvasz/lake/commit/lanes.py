"""Commits of many tables side by side, those of one table one after another: who gets stuck holds up nobody else.

Each table has a lane, and so has each group whose tables change in one commit. A commit that catalog or store refuse
is tried again there, as is one that they do not answer. After a moment it *steps aside*: whoever waits for the
commits of a mini-transaction gets those that are there, and later mini-transactions of the table wait in its lane
behind it. Those become one commit once the lane moves again, but for those of a group, and whoever brings more waits
for them.

What is stuck for `BOUND_S` is given up, which puts the table into error, but only where it is the table's own
trouble: others were committed meanwhile, or no other is stuck and catalog and store answer. If all of them are away,
everything waits until they are back, and nothing is in error.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kuvasz.backoff import Backoff
from kuvasz.errors import InternalError, KuvaszError, LakeError, LateCommit, TableStuck, place_of
from kuvasz.events import Event, EventLog
from kuvasz.model import Segment
from kuvasz.ports import Failure, Receipt

if TYPE_CHECKING:
    from kuvasz.lake.commit.written import WrittenTable
    from kuvasz.lake.table.table_lock import TableLock

_log = EventLog(__name__)

#: What came of a commit: a failure of each source that brought what is wrong, and what became of the others; nothing
#: if it belonged to a table that had failed before.
Outcome: TypeAlias = tuple[Receipt | Failure, ...]

T = TypeVar("T")

#: Before a step that failed is tried again; longer each time.
_FIRST_WAIT_S = 0.5

#: Between looks why a table's lock is not to be had.
_LOCK_LOOK_S = 0.1

#: How long a table may be stuck before it is given up.
BOUND_S = 60.0

#: How long catalog or store may take to answer before others do not wait for that any more.
PATIENCE_S = 2.0

#: A table whose lane has no room any more is given up earlier, but not before this.
_HASTE_S = 5.0

#: Between looks at what is stuck.
_LOOK_S = 0.05

#: How long a commit that was given up has to say why it failed; then it hangs.
_FAREWELL_S = 2.0

#: How long catalog and store may take to answer.
_ANSWER_S = 10.0

#: Tables that are committed side by side. A commit is mostly waiting (28/s with one thread, 80/s with four; 2 cores).
_TURNS = 4

#: Threads, most of which belong to tables that are stuck.
_THREADS = 128

#: Mini-transactions of a table that become one commit at most.
_TOGETHER = 64


class Ticket:
    """One commit of one table on its way, or of all tables of a group.

    Args:
        written: What is committed.
        others: What is committed at once with it of other tables.
        group: The group of all these tables; None for one that is committed on its own.
    """

    def __init__(self, written: WrittenTable, *others: WrittenTable, group: str | None = None) -> None:
        self.written = written
        self.all = (written, *others)
        self.group = group
        self.outcome: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self.bytes = sum(
            len(change.data) for one in self.all for change in one.work.changes if isinstance(change, Segment)
        ) + sum(len(rejected) for one in self.all for rejected in one.rejected())
        self.waits_since: float | None = None  #: for catalog or store, however often they refuse; monotonic seconds
        self.refusal: KuvaszError | None = None  #: the last one
        self.is_given_up = threading.Event()
        self.has_turn = False
        self._claim = threading.Lock()

    @property
    def target(self) -> str:
        """The table's name, or that of the first table of a group."""
        return self.written.work.target

    @property
    def lane(self) -> tuple[str, bool]:
        """What its lane is known by: a group has one for all of its tables."""
        return (self.target, False) if self.group is None else (self.group, True)

    def failed(self, error: KuvaszError) -> Outcome:
        """Return the outcome of a failure of all of it."""
        return tuple(Failure(target=one.work.target, error=error) for one in self.all)

    def claim(self) -> bool:
        """Be the one who says what came of it; returns False if someone else is."""
        return self._claim.acquire(blocking=False)

    def finish(self, outcome: Outcome) -> None:
        """Say what came of it, unless someone else does."""
        if self.claim():
            self.outcome.set_result(outcome)


class _Lane:
    """The commits of one table that are under way, in order; the first of them is at work."""

    def __init__(self) -> None:
        self.tickets: collections.deque[Ticket] = collections.deque()
        self.is_aside = False
        self.given_up_at = 0.0

    @property
    def bytes(self) -> int:
        """The bytes of its changes."""
        return sum(ticket.bytes for ticket in self.tickets)


class Lanes:
    """The lanes of all tables. Safe from any thread.

    Args:
        commit: Makes one commit of mini-transactions of a table, the first of which stands for all of them, and tries
            again until that is given up; returns what came of each, or of the first ones.
        hangs: Called with a table and the error it is given, when a commit that was given up does not return.
        answer: Raises a `KuvaszError` if catalog or store do not answer for any table.
        room_bytes: Changes whose commits may wait aside; beyond that whoever brings more waits.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Ticket]], Sequence[Outcome]],
        hangs: Callable[[Ticket], KuvaszError],
        answer: Callable[[], None],
        room_bytes: int,
    ) -> None:
        self._commit = commit
        self._hangs = hangs
        self._answer = answer
        self._room_bytes = room_bytes
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, bool], _Lane] = {}
        self._turns = threading.Semaphore(_TURNS)
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="commit")
        self._succeeded_at = 0.0
        self._closing = threading.Event()
        self._watch: threading.Thread | None = None

    def close(self) -> None:
        """Try nothing again any more."""
        self._closing.set()
        with self._lock:
            waiting = [ticket for lane in self._lanes.values() for ticket in lane.tickets]
        for ticket in waiting:
            ticket.is_given_up.set()

    @property
    def is_closing(self) -> bool:
        """Whether nothing is tried again any more."""
        return self._closing.is_set()

    def is_stuck(self, target: str) -> bool:
        """Whether commits of a table wait aside."""
        with self._lock:
            lane = self._lanes.get((target, False))
            return lane is not None and lane.is_aside and bool(lane.tickets)

    def put(self, tickets: Sequence[Ticket]) -> None:
        """Have commits made; return when each is made, or has stepped aside."""
        for ticket in tickets:
            self._queue(ticket)
        while waiting := [ticket for ticket in tickets if not ticket.outcome.done()]:
            if self._step_aside(waiting):
                break
            concurrent.futures.wait([ticket.outcome for ticket in waiting], timeout=_LOOK_S)

    def tried_again(self, ticket: Ticket, step: Callable[[], T]) -> T:
        """Do a step of a commit: catalog and store may fail for a while, and it is tried until that is given up."""
        backoff = Backoff(_FIRST_WAIT_S)
        ticket.waits_since = time.monotonic()
        while True:
            try:
                done = step()
            except LakeError as error:
                if self.is_closing or isinstance(error, LateCommit):
                    raise
                if ticket.is_given_up.is_set():
                    raise TableStuck(error.message, hint=error.hint) from error
                ticket.refusal = error
                wait = backoff.next_s()
                _log.tell(Event.COMMIT_RETRY, table=ticket.target, error=error.message, wait_s=wait)
                ticket.is_given_up.wait(wait)
            else:
                ticket.waits_since = ticket.refusal = None
                return done

    def _queue(self, ticket: Ticket) -> None:
        with self._lock:
            lane = self._lanes.setdefault(ticket.lane, _Lane())
            lane.tickets.append(ticket)
            is_first = len(lane.tickets) == 1
        if is_first:
            self._pool.submit(self._work_off, lane)

    def _work_off(self, lane: _Lane) -> None:
        ticket = lane.tickets[0]
        while True:
            if not lane.is_aside:
                self._turns.acquire()
                ticket.has_turn = True
            tickets = self._together(lane)
            outcomes: Sequence[Outcome]
            try:
                outcomes = self._commit(tickets)
            except Exception as error:  # noqa: BLE001 (the owner of the thread)
                _log.tell(Event.BUG_IN_COMMIT, table=ticket.target)
                why = InternalError(f"{place_of(table=ticket.target)}: {error!r}")
                outcomes = [ticket.failed(why)]
            receipts = [one for outcome in outcomes for one in outcome if isinstance(one, Receipt)]
            with self._lock:
                self._end_turn(ticket)
                if any(receipt.snapshot_id is not None for receipt in receipts):
                    self._succeeded_at = time.monotonic()
                for _ in outcomes:
                    lane.tickets.popleft()
                lane.given_up_at = 0.0
                following = lane.tickets[0] if lane.tickets else None
                if following is None or receipts:
                    lane.is_aside = False  # whoever brings more waits until the lane has caught up
            for done, outcome in zip(tickets, outcomes, strict=False):
                done.finish(outcome)
            if following is None:
                return
            ticket = following

    def _together(self, lane: _Lane) -> list[Ticket]:
        with self._lock:
            return list(itertools.islice(lane.tickets, _TOGETHER))

    def _end_turn(self, ticket: Ticket) -> None:
        if ticket.has_turn:
            ticket.has_turn = False
            self._turns.release()

    # Aside

    def _step_aside(self, waiting: Sequence[Ticket]) -> bool:
        """Let tables whose commits are late step aside; returns whether those are all that are waited for."""
        now = time.monotonic()
        with self._lock:
            late = [ticket for ticket in waiting if self._is_late(ticket, now)]
            if self._closing.is_set() or not late:
                return False
            lanes = {ticket.lane: self._lanes[ticket.lane] for ticket in late}
            new = sorted(name for (name, _), lane in lanes.items() if not lane.is_aside)
            for lane in lanes.values():
                lane.is_aside = True
                if lane.tickets:
                    self._end_turn(lane.tickets[0])
            is_done = len(late) == len(waiting) and self._has_room()
        self._begin_watch()
        if new:
            _log.tell(Event.COMMITS_STUCK, tables=new)
        return is_done

    def _is_late(self, ticket: Ticket, now: float) -> bool:
        lane = self._lanes[ticket.lane]
        heads = (ticket, *itertools.islice(lane.tickets, 1))  # who is behind a late one is late, too
        return lane.is_aside or any(
            head.refusal is not None or (head.waits_since is not None and now - head.waits_since > PATIENCE_S)
            for head in heads
        )

    def _has_room(self) -> bool:
        return sum(lane.bytes for lane in self._lanes.values() if lane.is_aside) <= self._room_bytes

    def _begin_watch(self) -> None:
        with self._lock:
            if self._watch is None and not self._closing.is_set():
                self._watch = threading.Thread(target=self._look, name="stuck-commits", daemon=True)
                self._watch.start()

    def _look(self) -> None:
        while not self._closing.wait(_LOOK_S):
            with self._lock:
                stuck = [lane for lane in self._lanes.values() if lane.is_aside and lane.tickets]
                if not stuck:
                    self._watch = None
                    return
                heads = [(lane, lane.tickets[0]) for lane in stuck]
                has_room = self._has_room()
            for lane, ticket in heads:
                self._give_up(lane, ticket, is_only=len(stuck) == 1, has_room=has_room)

    def _give_up(self, lane: _Lane, ticket: Ticket, *, is_only: bool, has_room: bool) -> None:
        now, since = time.monotonic(), ticket.waits_since
        if since is None or ticket.outcome.done():
            return
        if lane.given_up_at:
            if now - lane.given_up_at > _FAREWELL_S:
                self._leave_hanging(lane, ticket)
            return
        age = now - since
        is_due = age >= BOUND_S or (not has_room and age >= min(_HASTE_S, BOUND_S))
        others_go_on = now - self._succeeded_at < age / 2
        if is_due and (others_go_on or (is_only and self._is_answered())):
            lane.given_up_at = time.monotonic()
            ticket.is_given_up.set()

    def _is_answered(self) -> bool:
        """Whether catalog and store answer at all."""
        try:
            self._pool.submit(self._answer).result(_ANSWER_S)
        except (KuvaszError, TimeoutError, RuntimeError):
            return False
        return True

    def _leave_hanging(self, lane: _Lane, ticket: Ticket) -> None:
        """Give up a commit that nobody answers; if it is made in the end, its position says so."""
        if not ticket.claim():
            return  # it was answered just now
        error = self._hangs(ticket)
        with self._lock:
            behind = [one for one in lane.tickets if one is not ticket]
        ticket.outcome.set_result(ticket.failed(error))
        for one in behind:
            one.finish(())


@contextlib.contextmanager
def patiently(lock: TableLock, ticket: Ticket) -> Iterator[None]:
    """Hold a table's lock; while its holder waits for catalog or store, the commit is late for that."""
    while not lock.acquire(timeout=_LOCK_LOOK_S):
        ticket.waits_since = lock.doubtful_since
    ticket.waits_since = None
    try:
        yield
    finally:
        lock.release()


__all__ = ["BOUND_S", "PATIENCE_S", "Lanes", "Outcome", "Ticket", "patiently"]
