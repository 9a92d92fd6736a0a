"""What an index of the staged log owes: `tests/contract/test_log_index.py` holds both bodies to it.

*Staged*: in an object of the lake's store that the index knows. Only then is a source told that it may let go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kuvasz.errors import ConfigError, StateTaken

if TYPE_CHECKING:
    from kuvasz.state.ports import LeaseHolder
    from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedPosition:
    """How far one source is staged."""

    lsn: int  #: everything before it is staged, or was nothing of ours: what the source may be told
    ended: int  #: end LSN of the last transaction that is staged as a whole; 0: there was none
    number: int = 0  #: of the last stretch of its stream that is staged
    applied: int = 0  #: everything before it is in the lake, or parked
    #: grows whenever what was received before counts no more: see `LogIndex.append`
    past: int = dataclasses.field(default=0, compare=False)
    #: how often staged parts of a transaction that had not ended were given up
    given_up: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedSlice:
    """Where stretches of one source's stream are: so many bytes of an object."""

    source: str
    first: int  #: number of its first stretch
    last: int  #: of its last one
    through: int  #: LSN behind all of its transactions; within the one that goes on, if `is_open`
    is_open: bool  #: it is part of a transaction that goes on in the next one
    object: str  #: the object's name
    at: int  #: offset of its first byte
    size: int  #: bytes


class SourcesMoved(StateTaken):
    """Sources stand elsewhere in the log than here, or begin anew there."""

    def __init__(self, message: str, *, hint: str | None = None, sources: Collection[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.sources = frozenset(sources)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """A deployment with a lake of its own, that hears what the first one has staged."""

    name: str
    objects: int  #: that are there since the first of which its lake lacks something: half a million at most
    behind_s: float | None  #: seconds since the first of them was staged; None: it lacks nothing
    lives: bool  #: a process of it applies


class RemovalRound(NamedTuple):
    """What one round has found."""

    names: list[str]  #: of objects of which nothing is needed any more
    is_full: bool  #: it has done as much as one does: the next one may follow at once
    is_all: bool  #: nothing is left to look at, or to forget: else the next one goes on behind


class LogLease(NamedTuple):
    """Whose objects are whose, in a folder that another log may share."""

    log: str  #: a word that no other log has, for as long as this one is there
    number: int  #: greater than that of whoever held the lease before
    others: frozenset[int] = frozenset()  #: numbers of those who stage beside this one


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SharedSources:
    """Who reads which sources, as one of the processes that read is told."""

    node: str  #: that process
    nodes: Mapping[str, bool]  #: all that read and live -> whether it is to give away what it holds
    holders: Mapping[str, str | None]  #: sources that are to be read -> which of those holds it; None: nobody does
    pasts: Mapping[str, int]  #: the same sources -> as `StagedPosition.past`
    orders: Mapping[str, GivenOrder]  #: of the sources that this process holds


class LogIndex(Protocol):
    """The index. From any thread; what writes names the lease, and is refused when that is somebody else's.

    Large because it is all that is known of a log, and all that processes of one cluster say of it to each other.

    Raises from everything: `StateError` where it does not answer, `StateTaken` where the lease is lost.
    """

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def group(self) -> str | None:
        """The group that hears by it what is staged for the first one, and may do nothing else; None: it is that one.

        `begin_anew` then begins to hear a source where the log has all that follows, `withdraw` and `forget` hear it
        no more, `set_back` and `applied` are of the group's own lake, and `give` only proves what was ordered.
        """

    def open(self) -> LogLease:
        """Get ready, and return what names of objects begin with."""

    def retire(self) -> None:
        """Forget all sources, for nothing is staged from now on.

        Raises:
            ConfigError: Something is staged that is not in the lake.
        """

    def positions(self) -> dict[str, StagedPosition]:
        """Return how far each source is staged."""

    def append(
        self, name: str, slices: Sequence[StagedSlice], moves: Mapping[str, tuple[StagedPosition, StagedPosition]]
    ) -> None:
        """Make an object part of the log, and move sources: all of it or nothing. Once more it changes nothing.

        Args:
            name: The object's name, which no other one has or had.
            slices: What is in it; none, if sources only move.
            moves: Source -> its position as last known, and its next one; `applied` stays as it is. A `past` of 0 is
                not compared.

        Raises:
            SourcesMoved: Sources stand elsewhere than whoever appends believes, or begin anew.
        """

    def begin_anew(self, source: str, lsn: int) -> None:
        """Have a source begin at an LSN: whatever was staged of it is of a past that counts no more."""

    def set_back(self, source: str, lsn: int) -> None:
        """Have a source go on behind an LSN at most, in all lakes; all that is staged of it ended before."""

    def abandon_open(self, source: str, ended: int, past: int = 0) -> None:
        """Forget parts of a transaction that has not ended: it begins again.

        Args:
            source: Whose it is.
            ended: End LSN of the last transaction that did end, whether that is staged as a whole yet or not.
            past: As whoever received them knows it; 0: that is not compared.

        Raises:
            SourcesMoved: The source begins anew.
        """

    def slices(self, source: str, after: int, *, through: int, most: int) -> list[StagedSlice]:
        """Return what is staged of a source, in its order.

        Args:
            source: Its name.
            after: Number of the stretch behind which to begin.
            through: What ends at or before this LSN is left out.
            most: How many at most.
        """

    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> RemovalRound:
        """Note how far sources are in the lake, and forget some of what nobody needs any more.

        Args:
            lsns: Source -> the LSN before which everything is in the lake.
            removed: Objects that are removed by now: they are known no more.
            most: How many names to return.

        Returns:
            Objects of which nothing is needed, and that are still known: they may be removed.
        """

    def objects(self) -> Collection[str]:
        """Return the names of all objects of the log."""

    def count(self) -> int:
        """Return how many objects that are: a million, if there are more, for it is asked for often."""

    def needed(self, most: int = 1000) -> Collection[str]:
        """Return the names of some of those of which something is needed, the first ones by name.

        Args:
            most: How many: what it takes goes by that, and not by how much is staged.
        """

    def lies_in(self) -> str | None:
        """Return the folder that objects were written into last, as whoever did so calls it; None: nobody said."""

    def word(self) -> str | None:
        """Return what the names of the log's objects begin with; None: nobody has opened it yet."""

    def lay(self, place: str) -> None:
        """Say which folder objects are written into from now on."""

    def forget(self, source: str) -> None:
        """Forget a source, and what is staged of it."""

    # Where one process reads, and another one applies

    def give(self, source: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """Have a source that is known read as an order says; another one than before begins another past.

        Args:
            source: Its name.
            order: The order.
            known: What the lake has of the source by now.
            is_again: It was given before: unless it is the one that stands, nothing is done.

        Returns:
            Whether it stands.

        Raises:
            SourceError: A group hears it, and it is not read as that needs it.
        """

    def wanted(self) -> Collection[str]:
        """Return the sources that are to be read, or that the group hears."""

    def withdraw(self, source: str) -> None:
        """Have a source read no more: what was received and is not staged counts no more.

        So it is whenever a source begins anew, or is set back.
        """

    def orders(self) -> dict[str, GivenOrder]:
        """Return the orders that stand."""

    def answer(self, source: str, past: int, answer: StreamAnswer) -> None:
        """Say what came of an order, unless it stands no more."""

    def answers(self) -> dict[str, StreamAnswer]:
        """Return what came of the orders that stand, as far as anything was said."""

    def reader(self) -> LeaseHolder | None:
        """Return a process that reads, or did and left without a word; None: there is none."""

    def is_applied(self) -> bool:
        """Whether a process applies what is staged to the lake of whoever asks."""

    # Where several processes read

    def shared(self) -> SharedSources:
        """Return who reads, and which sources each of them holds."""

    def hold(self, pasts: Mapping[str, int]) -> Collection[str]:
        """Take sources that nobody holds who lives, and begin another past of each.

        Whoever held one and left without a word is refused everything from then on.

        Args:
            pasts: Sources, as `shared` showed them: another one may have taken one since.

        Returns:
            The sources that this process holds from now on.
        """

    def release(self, sources: Collection[str]) -> None:
        """Give sources back that this process holds, and begin another past of each: no more of them is staged."""

    def unread(self) -> Collection[str]:
        """Return the sources that are to be read, and that nobody holds who was heard of in time."""

    # Where groups hear what is staged for the first one

    def rejoin(self, source: str) -> bool:
        """Have a group go on with a source that is of another past by now: it is about to look at the source.

        Until then `positions` has nothing of it, and `applied` changes nothing.

        Returns:
            Whether there is anything to go on with: it has not begun anew since, and is there.
        """

    def groups(self) -> Sequence[LogGroup]:
        """Return the groups of the log."""


def still_staged(place: str, sources: Collection[str]) -> ConfigError:
    """Return the error of a log that is left out of the map, and has what is nowhere else."""
    return ConfigError(
        f"cluster.log: it is not set, and {place} has staged changes of {', '.join(sorted(sources))}"
        " that the lake lacks",
        hint="set it to what it was; leave it out when nothing of the log's folder is left",
    )


__all__ = [
    "LogGroup",
    "LogIndex",
    "LogLease",
    "RemovalRound",
    "SourcesMoved",
    "StagedPosition",
    "StagedSlice",
    "still_staged",
]  # fmt: skip
