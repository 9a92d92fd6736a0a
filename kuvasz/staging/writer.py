"""The thread that stages: every so often what came of all sources becomes one object, and a part of the log.

    taken from memory ──> object written ──> index: slices, and each source's next position ──> sources may let go

What fails is tried again for ever, with the same bytes: nothing is left out, and nothing overtakes it. Meanwhile
sources are read until `room` is full.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from kuvasz import failpoints
from kuvasz.backoff import Backoff
from kuvasz.errors import InternalError, KuvaszError, StateError, StateTaken
from kuvasz.events import Event, EventLog
from kuvasz.seal.sealing_secrets import SealingSecrets
from kuvasz.staging import slice_format
from kuvasz.staging.object_name import object_names
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.staged_removal import StagedRemoval
from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.ports import LogIndex, LogLease, SourcesMoved, StagedPosition, StagedSlice

_log = EventLog(__name__)

#: Seconds between two notes of sources that only moved, for each source that there is, the least and the most:
#: whoever applies apart asks then for each of them what is staged of it.
_QUIET_S, _LEAST_QUIET_S, _MOST_QUIET_S = 0.03, 1.0, 10.0

#: Seconds between two looks at what the lake has by now.
_SHORTEN_S: Final = 1.0

_LOOK_S: Final = 0.02


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """What is staged in one step."""

    name: str
    pieces: Sequence[bytes]
    slices: Sequence[StagedSlice]
    moves: Mapping[str, tuple[StagedPosition, StagedPosition]]


class LogWriter:
    """The writer.

    Large because it is a thread: when it takes what, and from whom, and what it tries again, is one sequence.

    Args:
        index: Where it is known what is staged.
        store: Where objects are.
        sources: Returns the sources.
        room: Says of which of them anything waits.
        interval_s: Between two objects.
        object_bytes: At which one is written before that.
        on_staged: Called behind each step, in the writer's thread.
        is_alone: Nobody else begins sources anew; else what was received of one that is, is let go of.
        secrets: What slices are sealed with; by default they are not.
    """

    def __init__(  # noqa: PLR0913 (the neighbours of a stage are its parameters)
        self,
        index: LogIndex,
        store: ObjectStore,
        sources: Callable[[], Iterable[StagedSource]],
        room: StagedRoom,
        *,
        interval_s: float,
        object_bytes: int,
        on_staged: Callable[[], None],
        is_alone: bool = True,
        secrets: SealingSecrets | None = None,
    ) -> None:
        self.turn = threading.Lock()  #: held while a step is taken: who begins a source anew takes it, too
        self.error: KuvaszError | OSError | None = None  #: why nothing is staged just now
        self._index = index
        self._store = store
        self._sources = sources
        self._room = room
        self._interval_s = interval_s
        self._object_bytes = object_bytes
        self._on_staged = on_staged
        self._is_alone = is_alone
        self._secrets = secrets or SealingSecrets()
        self._names = object_names(LogLease("", 0))
        self.removal = StagedRemoval(index, store)
        self.staged_at: float | None = None  #: monotonic seconds at which something was staged last
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stage", daemon=True)

    def start(self, lease: LogLease) -> None:
        """Start the thread; what the lease says begins the objects' names."""
        self._names = object_names(lease)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stage what has come, if that can be done at once, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def died(self) -> KuvaszError | None:
        """Why the thread has ended: a mistake of ours, or the log is another process's; None while it is well."""
        return self.error if isinstance(self.error, (InternalError, StateTaken)) else None

    def _run(self) -> None:
        try:
            self._stage()
        except StateTaken:
            return  # whoever goes on would tell sources what the log does not have
        except Exception as error:  # noqa: BLE001 (the owner of the thread)
            self.error = InternalError(f"the staged log: {error!r}")
            _log.tell(Event.BUG_IN_STAGING)

    def _stage(self) -> None:
        staged_at = quiet_at = shortened_at = time.monotonic()
        quiet_s = self._quiet_s
        while not self._stop.is_set():
            self._stop.wait(_LOOK_S)
            now = time.monotonic()
            waiting = self._room.bytes
            is_quiet = now - quiet_at >= quiet_s
            if waiting >= self._object_bytes or (waiting and now - staged_at >= self._interval_s) or is_quiet:
                staged_at = now
                self._step()
            if is_quiet:
                quiet_at, quiet_s = now, self._quiet_s
            if now - shortened_at >= _SHORTEN_S:
                shortened_at = now
                self._shorten()
        self._step()
        self._shorten()

    @property
    def _quiet_s(self) -> float:
        return min(max(_LEAST_QUIET_S, _QUIET_S * sum(1 for _ in self._sources())), _MOST_QUIET_S)

    def _step(self) -> None:
        with self.turn:
            by_name = {source.name: source for source in self._waiting()}  # of one that is left, nothing waits behind
            made = self._made(by_name.values())
            if made is None or not self._put(made):
                return
            for name, (_, after) in made.moves.items():
                by_name[name].staged(after)
        self._on_staged()

    def _made(self, waiting: Iterable[StagedSource]) -> _Object | None:
        name = next(self._names)
        pieces: list[bytes] = []
        slices: list[StagedSlice] = []
        moves: dict[str, tuple[StagedPosition, StagedPosition]] = {}
        at = 0
        for source in waiting:
            stretches = source.unstaged(self._object_bytes)
            if not stretches:
                continue
            last = stretches[-1]
            moves[source.name] = (
                source.known,
                dataclasses.replace(source.known, lsn=last.lsn, ended=last.ended, number=last.number),
            )
            with_rows = [stretch for stretch in stretches if stretch.has_rows]
            if with_rows:
                encoded = slice_format.encode(source.name, with_rows, self._secrets)
                size = sum(map(len, encoded))
                slices.append(_slice(source.name, with_rows, name, at, size))
                pieces += encoded
                at += size
        return _Object(name=name, pieces=pieces, slices=slices, moves=moves) if moves else None

    def _waiting(self) -> list[StagedSource]:
        names = set(self._room.sources())
        return [source for source in self._sources() if source.name in names] if names else []

    def _put(self, made: _Object) -> bool:
        """Stage an object, however often it takes; False if the process ends before that."""
        backoff = Backoff()
        while True:
            try:
                failpoints.hit("before_stage", OSError)
                if made.slices:
                    self._store.put(made.name, *made.pieces)
                failpoints.hit("object_written", StateError)
                self._index.append(made.name, made.slices, made.moves)
                failpoints.hit("staged", StateError)
            except (OSError, KuvaszError) as error:
                if isinstance(error, SourcesMoved) and not self._is_alone:
                    self._leave(made, error.sources)
                    return False
                if self.error is None:
                    _log.tell(Event.STAGING_FAILED, error=str(error))
                self.error = error
                if isinstance(error, StateTaken):
                    raise
                if self._stop.wait(backoff.next_s(random.random())):  # noqa: S311 (processes that fail together)
                    return False
            else:
                if self.error is not None:
                    _log.tell(Event.STAGING_GOES_ON)
                self.error = None
                self.staged_at = time.monotonic()
                self.removal.objects += bool(made.slices)
                return True

    def _leave(self, made: _Object, sources: Collection[str]) -> None:
        """Let go of what was received of sources that begin anew; the index has nothing of the object."""
        for source in self._sources():
            if source.name in sources:
                source.leave()
        if made.slices:
            self._store.remove([made.name])

    def _shorten(self) -> None:
        """Have the index know how far the lake is, and remove what nobody needs any more."""
        if not self._is_alone:
            return  # whoever applies does that
        with self.turn:
            self.removal.look(self._sources())
        self.removal.remove()


def _slice(source: str, stretches: Sequence[Stretch], name: str, at: int, size: int) -> StagedSlice:
    last = stretches[-1]
    return StagedSlice(
        source=source, first=stretches[0].number, last=last.number, through=last.through,
        is_open=bool(last.open_lsn), object=name, at=at, size=size,
    )  # fmt: skip


__all__ = ["LogWriter"]
