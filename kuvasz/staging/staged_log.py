"""The staged log of a process: its sources, the thread that stages, and what was staged before, read again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, LakeError, SlotLost, SourceError, StateError, place_of, start_over
from kuvasz.events import Event, EventLog
from kuvasz.seal.sealing_secrets import SealingSecrets, SealUnknown
from kuvasz.staging import slice_format
from kuvasz.staging.apart.follower import LogFollower
from kuvasz.staging.object_name import is_of_before
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.slice_format import SliceDamaged, SliceData, SliceUnknown
from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.staging.writer import LogWriter
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.state.staged.ports import LogIndex, LogLease, StagedPosition, StagedSlice

_log = EventLog(__name__)

#: Of `object_bytes`: how much of all sources may wait to be staged before they are read no further.
_WAITING: Final = 2

#: What one source may keep in memory at least, for whoever has not heard it yet.
_LEAST_KEPT: Final = 1 << 20

#: Seconds that the last step may take when kuvasz stops.
_STOP_S: Final = 3.0

_SLICES: Final = 32

#: Of what is needed, how many objects are looked for where a log's folder is to be another one.
_PROVING: Final = 1000

#: Seconds for which whoever begins a source anew waits for what is being staged.
_TURN_S: Final = 5.0


class StagedLog:
    """The log. From any thread; calls block unless they say otherwise.

    Large because whoever receives, hears, begins anew and looks at sources meets here, in one process or in two.

    Args:
        index: Where it is known what is staged.
        store: Where objects are.
        interval_s: Between two objects.
        object_bytes: At which one is written before that.
        sources: About how many there are: they share the memory.
        role: `read`: it is staged here, and heard elsewhere; `apply`: it is staged elsewhere.
        is_shared: Others apply as well: of each source it is said when it is one's own (`adopt`).
        secrets: What slices are sealed with, and opened; by default they are not.
    """

    def __init__(
        self,
        index: LogIndex,
        store: ObjectStore,
        *,
        interval_s: float,
        object_bytes: int,
        sources: int,
        role: ClusterRole = ClusterRole.ALL,
        is_shared: bool = False,
        secrets: SealingSecrets | None = None,
    ) -> None:
        self.index = index  #: where it is known what is staged
        self._secrets = secrets or SealingSecrets()
        self._store = store
        self._role = role
        self._is_shared = is_shared
        self.room = StagedRoom(_WAITING * object_bytes)
        keep_bytes = max(_LEAST_KEPT, object_bytes // max(1, sources))
        self._keep_bytes = keep_bytes if role is ClusterRole.ALL else -1
        self._sources: dict[str, StagedSource] = {}
        self._lock = threading.Lock()
        self._listeners: dict[str, Callable[[], None]] = {}
        self.follower = LogFollower(index, store, self._all, self._tell) if role is ClusterRole.APPLY else None
        self.writer = self.follower or LogWriter(
            index, store, self._all, self.room, interval_s=interval_s, object_bytes=object_bytes,
            on_staged=self._tell, is_alone=role is ClusterRole.ALL, secrets=self._secrets,
        )  # fmt: skip

    def open(self) -> None:
        """Take over what earlier processes have staged, and begin to stage.

        Raises:
            StateError: The coordinator does not answer.
            LakeError: The store does not.
            ConfigError: What is staged is in another folder.
        """
        lease = self.index.open()
        self._prove_place()
        positions = {} if self._is_shared else self.index.positions()
        with self._lock:
            self._sources = {
                name: StagedSource(name, position, self.room, self._keep_bytes)
                for name, position in positions.items()
            }
        if self.follower is None:
            self._remove_strays(lease)
        else:
            self.follower.look()
        self.writer.start(lease)
        _log.tell(Event.LOG_OPEN, place=self._store.place, sources=len(positions))

    def _prove_place(self) -> None:
        """Make sure that what is staged is in this folder; two names of one folder are no difference."""
        before, here = self.index.lies_in(), self._store.place
        if before == here:
            return
        # The names first: of what is needed behind that the oldest is there, unless all of it has come since.
        names = self._names()
        needed = self.index.needed(_PROVING)
        if needed and names.isdisjoint(needed):
            there = "" if before is None else f", which {'is' if len(needed) == 1 else 'are'} in {before}"
            raise ConfigError(
                f"cluster.log: {here} has none of {_counted(needed)} staged objects that the lake lacks{there}",
                hint="set it to what it was until nothing of the log's folder is left, or move the objects there",
            )
        if self.follower is None:
            self.index.lay(here)

    def _names(self) -> set[str]:
        try:
            return set(self._store.names())
        except OSError as error:
            hint = "see that `cluster.log` is a folder that kuvasz may list and write"
            raise LakeError(f"cluster.log: {self._store.place} cannot be listed: {error}", hint=hint) from error

    def _remove_strays(self, lease: LogLease) -> None:
        """Remove objects that a process wrote which then died, or lost its lease: the index refuses them for ever.

        Those of a later holder are none: this process may have lost the lease since, without having noticed. Nor is
        what others write who stage beside it, or what another log has in the same folder.
        """
        known = set(self.index.objects())
        self.writer.removal.objects = len(known)
        self._store.remove([name for name in self._names() if name not in known and is_of_before(name, lease)])

    def adopt(self, names: Iterable[str]) -> None:
        """Go by how far sources are staged and applied by now, whatever was known of them before.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._turn():
            positions = self.index.positions()
            with self._lock:
                self._sources |= {
                    name: StagedSource(name, positions.get(name), self.room, self._keep_bytes) for name in names
                }

    def let_go(self, names: Iterable[str]) -> None:
        """Say no more how far the lake is with sources: another process applies them."""
        with self.writer.turn, self._lock:
            for name in names:
                self._sources.pop(name, None)

    def close(self) -> None:
        """Stage what has come, if that can be done soon, and end."""
        self.writer.stop(_STOP_S)

    @property
    def group(self) -> str | None:
        """The group of the log that this process applies for, which has no slots of its own; None: the first one."""
        return self.index.group

    def _all(self) -> list[StagedSource]:
        with self._lock:
            return list(self._sources.values())

    def source(self, name: str) -> StagedSource:
        """Return a source of the log; one that nothing is known of has to begin anew."""
        with self._lock:
            if name not in self._sources:
                self._sources[name] = StagedSource(name, None, self.room, self._keep_bytes)
            return self._sources[name]

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Nothing is staged meanwhile; what is on its way may take as long as the store is away."""
        if not self.writer.turn.acquire(timeout=_TURN_S):
            raise StateError(f"cluster.log: {self._store.place} cannot be written now", hint="it is tried again")
        try:
            yield
        finally:
            self.writer.turn.release()

    def staged(self) -> dict[str, int]:
        """Return the LSN of each source before which everything is staged; it does not block."""
        return {one.name: one.position.lsn for one in self._all() if one.position is not None}

    def begin_anew(self, name: str, lsn: int) -> None:
        """Have a source begin at an LSN: what was staged of it is of a past that counts no more.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._turn():
            self.index.begin_anew(name, lsn)
            self.source(name).begin(self._position(name))

    def set_back(self, name: str, lsn: int) -> int:
        """Have a source go on behind an LSN where another server does; return how far the lake is with it.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._turn():
            source = self.source(name)
            to = max(lsn, source.newest[1])
            self.index.set_back(name, to)
            source.set_back(to, self._position(name).past)
            return source.applied

    def _position(self, name: str) -> StagedPosition:
        """Return how far a source is staged.

        Raises:
            StateError: It begins anew where the slots are.
        """
        found = self.index.positions().get(name)
        if found is None:
            raise StateError(f"{self.index.place}: {name} begins anew", hint="it is looked at again")
        return found

    def abandon_open(self, name: str) -> None:
        """Give up the parts of a source's transaction that has not ended: its next connection brings it again.

        Raises:
            StateError: The coordinator does not answer.
        """
        source = self.source(name)
        # Where there are none nothing of it is on its way: it is connected also while the store is away.
        with self._turn() if source.is_open else contextlib.nullcontext():
            # Of one that ended the last parts may be in memory alone, and those before them are needed.
            self.index.abandon_open(name, source.newest[1], source.known.past)
            source.abandon_open()

    def look(self, name: str) -> StagedPosition | None:
        """Return how far a source is staged, as the index has it, and go by that from now on; None: it is not known.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self.follower is not None:
            self.follower.look()
        return self.source(name).position

    def rejoin(self, name: str) -> StagedPosition | None:
        """Go by how a group has a source by now, which is about to be looked at; None: it has to begin anew.

        Raises:
            StateError: The coordinator does not answer, or the source is of yet another past.
        """
        with self._turn():
            if not self.index.rejoin(name):
                self.source(name).lose()
                return None
            position = self._position(name)
            self.source(name).begin(position)
            return position

    def take_over(self, pasts: Mapping[str, int]) -> list[str]:
        """Begin to receive sources where they are staged.

        Args:
            pasts: Source -> of which past it is to be.

        Returns:
            Those that are.

        Raises:
            StateError: The coordinator does not answer, or the store cannot be written now.
        """
        with self._turn():
            positions = self.index.positions()
            of_now = [name for name, past in pasts.items() if name in positions and positions[name].past == past]
            for name in of_now:
                self.source(name).begin(positions[name])
            return of_now

    def give(self, name: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """Have a source read by another process; `is_again`: only tell who does so already what is known by now.

        Returns:
            Whether the order stands.

        Raises:
            StateError: The coordinator does not answer.
            SourceError: A group of the log hears it, and it is not read as that needs it.
        """
        return self.index.give(name, order, known, is_again=is_again)

    def standing_order(self, name: str) -> StreamOrder | None:
        """Return how a source is to be read by another process; None: nobody is to read it.

        Raises:
            StateError: The coordinator does not answer.
        """
        given = self.index.orders().get(name)
        return None if given is None else given.order

    def keep_orders(self, names: Collection[str]) -> None:
        """Have no others than some sources read by another process: the rest has left the map.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self.follower is not None:
            for name in set(self.index.wanted()) - set(names):
                self.withdraw(name)

    def withdraw(self, name: str) -> None:
        """Have a source read by nobody.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._turn():
            self.index.withdraw(name)

    def forget(self, name: str) -> None:
        """Forget a source whose slot is gone.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._turn():
            self.index.forget(name)
            self.room.note(name, None)
            with self._lock:
                self._sources.pop(name, None)

    def listen(self, name: str, told: Callable[[], None]) -> None:
        """Have a function called, in a thread, whenever something was staged; for a source's sake."""
        self._listeners[name] = told

    def unlisten(self, name: str) -> None:
        """Tell no function any more for a source's sake."""
        self._listeners.pop(name, None)

    def _tell(self) -> None:
        for told in tuple(self._listeners.values()):
            told()

    def slices(self, name: str, after: int, from_lsn: int) -> list[StagedSlice]:
        """Return some of what is staged of a source behind a stretch, without what ended at or before an LSN.

        Raises:
            StateError: The coordinator does not answer.
        """
        return self.index.slices(name, after, through=from_lsn, most=_SLICES)

    def read(self, wanted: StagedSlice) -> SliceData:
        """Return what a slice holds.

        Raises:
            SlotLost: It is gone or damaged: its source was told long ago that it may let go.
            SourceError: It cannot be read now, or without a secret that the map lacks, or is needed no more.
        """
        place = f"{place_of(wanted.source)}: {self._store.place}/{wanted.object}"
        try:
            found = self._store.get(wanted.object, wanted.at, wanted.size)
            return slice_format.decode(found, wanted.source, wanted.first, wanted.last, self._secrets)
        except (FileNotFoundError, SliceDamaged) as error:
            if wanted not in self.index.slices(wanted.source, wanted.last - 1, through=0, most=1):
                # The lake has it by now, or its transaction begins again.
                raise SourceError(f"{place} is needed no more", hint="it is tried again") from error
            there = self.index.lies_in()
            if isinstance(error, FileNotFoundError) and there not in {None, self._store.place}:
                hint = "give all processes the same `cluster.log`, which has what is staged; it is tried again"
                raise SourceError(f"{place} is not there: what is staged is in {there}", hint=hint) from error
            why = "is gone" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
            hint = f"staged changes are missing, and the source has let go of them: {start_over(wanted.source)}"
            raise SlotLost(f"{place} {why}", hint=hint) from error
        except SealUnknown as error:
            raise SourceError(
                f"{place} was sealed with another secret than the map has",
                hint="set `pipeline.earlier_seal_secret` to the `seal_secret` of then, and start again",
            ) from error
        except (OSError, SliceUnknown) as error:
            raise SourceError(f"{place} cannot be read: {error}", hint="it is tried again") from error


def _counted(needed: Collection[str]) -> str:
    """Return how many objects are needed, of which no more were named than that."""
    return f"{len(needed)} or more" if len(needed) == _PROVING else str(len(needed))


__all__ = ["StagedLog"]
