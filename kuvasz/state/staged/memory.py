"""The index of a staged log in memory, for tests: it outlives whatever uses it, and ends with its process."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from kuvasz.errors import StateError, StateTaken
from kuvasz.state.ports import LeaseHolder
from kuvasz.state.staged.order_proof import prove_order
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder
from kuvasz.state.staged.ports import (
    LogGroup,
    LogIndex,
    LogLease,
    RemovalRound,
    SharedSources,
    SourcesMoved,
    StagedPosition,
    StagedSlice,
    still_staged,
)
from kuvasz.state.staged.promotion import lacking


class MemoryIndex(LogIndex):
    """The index. Who opened it last holds the lease.

    Large because it is all that is known of a log.
    """

    def __init__(self) -> None:
        self._positions: dict[str, StagedPosition] = {}
        self._slices: list[StagedSlice] = []
        self._objects: dict[str, None] = {}  #: in the order in which they were staged
        self._opened = 0
        self._pasts = 0
        self._place: str | None = None
        self._given: dict[str, GivenOrder] = {}
        self._answers: dict[str, StreamAnswer] = {}
        self.node = "memory"  #: who asks; several may, one after another
        self.nodes = {self.node: False}  #: those who read -> whether it is to give away what it holds
        self._holders: dict[str, str] = {}
        self._begun: dict[str, int] = {}  #: source -> another number whenever it begins anew
        self._groups: dict[str, dict[str, GroupPosition]] = {}  #: group -> what it hears

    def of_group(self, name: str) -> MemoryGroupIndex:
        """Return the index as a group of the log has it."""
        return MemoryGroupIndex(self, name)

    @property
    @override
    def group(self) -> str | None:
        """See `LogIndex.group`."""
        return None

    @property
    @override
    def place(self) -> str:
        """See `LogIndex.place`."""
        return "memory"

    @override
    def open(self) -> LogLease:
        """See `LogIndex.open`."""
        self._opened += 1
        return LogLease("memory", self._opened)

    @override
    def retire(self) -> None:
        """See `LogIndex.retire`."""
        if self._slices:
            raise still_staged(self.place, {one.source for one in self._slices})
        self._positions.clear()

    @override
    def positions(self) -> dict[str, StagedPosition]:
        """See `LogIndex.positions`."""
        return dict(self._positions)

    @override
    def append(
        self, name: str, slices: Sequence[StagedSlice], moves: Mapping[str, tuple[StagedPosition, StagedPosition]]
    ) -> None:
        """See `LogIndex.append`."""
        if name in self._objects:
            return
        elsewhere = {source for source, (before, after) in moves.items() if not self._stands(source, before, after)}
        if elsewhere:
            raise SourcesMoved(f"{self.place}: sources stand elsewhere", sources=elsewhere)
        for source, (_, after) in moves.items():
            self._change(source, lsn=after.lsn, ended=after.ended, number=after.number)
        self._slices += slices
        if slices:
            self._objects[name] = None

    def _stands(self, source: str, before: StagedPosition, after: StagedPosition) -> bool:
        known = self._positions.get(source)
        if known is None or before.past not in {0, known.past}:
            return False
        return (known.number, known.lsn) in {(before.number, before.lsn), (after.number, after.lsn)}

    def _change(self, source: str, **changes: int) -> None:
        self._positions[source] = dataclasses.replace(self._positions[source], **changes)

    def _anew(self, source: str) -> None:
        self._pasts += 1
        self._change(source, past=self._pasts)
        self._given.pop(source, None)
        self._answers.pop(source, None)

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        known = self._positions.get(source, StagedPosition(lsn=0, ended=0))
        self._slices = [one for one in self._slices if one.source != source]
        self._positions[source] = dataclasses.replace(known, lsn=lsn, ended=0, applied=lsn)
        self._anew(source)
        self._begun[source] = self._pasts

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        known = self._positions[source]
        self._change(source, lsn=min(known.lsn, lsn), applied=min(known.applied, lsn))
        for heard in self._groups.values():
            if source in heard:
                heard[source].applied = min(heard[source].applied, lsn)
        self._anew(source)

    @override
    def abandon_open(self, source: str, ended: int, past: int = 0) -> None:
        """See `LogIndex.abandon_open`."""
        if past and self._positions[source].past != past:
            raise SourcesMoved(f"{self.place}: source {source} begins anew", sources=[source])
        kept = [one for one in self._slices if not (one.source == source and one.is_open and one.through > ended)]
        if len(kept) < len(self._slices):
            self._change(source, given_up=self._positions[source].given_up + 1)
        self._slices = kept

    @override
    def slices(self, source: str, after: int, *, through: int, most: int) -> list[StagedSlice]:
        """See `LogIndex.slices`."""
        mine = [one for one in self._slices if one.source == source and one.last > after and one.through > through]
        return sorted(mine, key=lambda one: one.last)[:most]

    @override
    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> RemovalRound:
        """See `LogIndex.applied`."""
        for source, lsn in lsns.items():
            if (known := self._positions.get(source)) is not None:
                self._positions[source] = dataclasses.replace(known, applied=max(known.applied, lsn))
        return self._shortened(removed, most)

    def _shortened(self, removed: Collection[str], most: int) -> RemovalRound:
        for name in removed:
            self._objects.pop(name, None)
        self._slices = [one for one in self._slices if one.through > self._applied_by_all(one.source)]
        unneeded = sorted(self._objects.keys() - {one.object for one in self._slices})
        is_full = len(unneeded) >= most
        return RemovalRound(unneeded[:most], is_full=is_full, is_all=not is_full)

    def _applied_by_all(self, source: str) -> int:
        heard = (found[source] for found in self._groups.values() if source in found)
        of_now = (one.applied for one in heard if one.begun == self._begun.get(source))
        return min([self._positions[source].applied, *of_now])

    @override
    def objects(self) -> Collection[str]:
        """See `LogIndex.objects`."""
        return set(self._objects)

    @override
    def count(self) -> int:
        """See `LogIndex.count`."""
        return len(self.objects())

    @override
    def needed(self, most: int = 1000) -> Collection[str]:
        """See `LogIndex.needed`."""
        return sorted({one.object for one in self._slices})[:most]

    @override
    def lies_in(self) -> str | None:
        """See `LogIndex.lies_in`."""
        return self._place

    @override
    def word(self) -> str | None:
        """See `LogIndex.word`."""
        return "memory" if self._opened else None

    @override
    def lay(self, place: str) -> None:
        """See `LogIndex.lay`."""
        self._place = place

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        self._slices = [one for one in self._slices if one.source != source]
        self._positions.pop(source, None)
        self._given.pop(source, None)

    @override
    def give(self, source: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """See `LogIndex.give`."""
        before = self._given.get(source)
        if before is None or before.order != order:
            if is_again:
                return False
            self._anew(source)
        self._given[source] = GivenOrder(past=self._positions[source].past, order=order, known=known)
        return True

    @override
    def wanted(self) -> Collection[str]:
        """See `LogIndex.wanted`."""
        return self.orders().keys()

    @override
    def withdraw(self, source: str) -> None:
        """See `LogIndex.withdraw`."""
        if source in self._positions:
            self._anew(source)

    @override
    def orders(self) -> dict[str, GivenOrder]:
        """See `LogIndex.orders`."""
        return dict(self._given)

    @override
    def answer(self, source: str, past: int, answer: StreamAnswer) -> None:
        """See `LogIndex.answer`."""
        if source in self._given and self._given[source].past == past:
            self._answers[source] = dataclasses.replace(answer, past=past)

    @override
    def answers(self) -> dict[str, StreamAnswer]:
        """See `LogIndex.answers`."""
        return dict(self._answers)

    @override
    def reader(self) -> LeaseHolder | None:
        """See `LogIndex.reader`."""
        return None

    @override
    def is_applied(self) -> bool:
        """See `LogIndex.is_applied`: whoever opened it does."""
        return self._opened > 0

    @override
    def shared(self) -> SharedSources:
        """See `LogIndex.shared`."""
        return SharedSources(
            node=self.node,
            nodes=dict(self.nodes),
            holders={source: self._holder(source) for source in self._given},
            pasts={source: given.past for source, given in self._given.items()},
            orders={source: given for source, given in self._given.items() if self._holder(source) == self.node},
        )

    def _holder(self, source: str) -> str | None:
        holder = self._holders.get(source)
        return holder if holder in self.nodes else None

    @override
    def hold(self, pasts: Mapping[str, int]) -> Collection[str]:
        """See `LogIndex.hold`."""
        free = [
            source
            for source, past in pasts.items()
            if source in self._given and self._given[source].past == past and self._holder(source) is None
        ]
        for source in free:
            self._change_hands(source)
            self._holders[source] = self.node
        return free

    def _change_hands(self, source: str) -> None:
        self._pasts += 1
        self._change(source, past=self._pasts)
        if source in self._given:
            self._given[source] = dataclasses.replace(self._given[source], past=self._pasts)
        self._answers.pop(source, None)

    @override
    def release(self, sources: Collection[str]) -> None:
        """See `LogIndex.release`."""
        for source in sources:
            if self._holders.get(source) == self.node:
                del self._holders[source]
                self._change_hands(source)

    @override
    def unread(self) -> Collection[str]:
        """See `LogIndex.unread`."""
        return sorted(source for source in self._given if self._holder(source) is None)

    @override
    def rejoin(self, source: str) -> bool:
        """See `LogIndex.rejoin`."""
        return source in self._positions

    @override
    def groups(self) -> list[LogGroup]:
        """See `LogIndex.groups`."""
        return [self._group(name, heard) for name, heard in sorted(self._groups.items())]

    def _group(self, name: str, heard: Mapping[str, GroupPosition]) -> LogGroup:
        of_now = {source: one for source, one in heard.items() if one.begun == self._begun.get(source)}
        lacking = {
            one.object for one in self._slices if one.source in of_now and one.through > of_now[one.source].applied
        }
        later = list(itertools.dropwhile(lambda name: name not in lacking, self._objects))
        return LogGroup(name=name, objects=len(later), behind_s=0.0 if lacking else None, lives=False)

    def retire_group(self, name: str) -> None:
        """Forget a group, as `log_groups.LogGroups.retire` does."""
        del self._groups[name]

    def promote_group(self, name: str, former: str) -> None:
        """Have a group be the first one, as `log_groups.LogGroups.promote` does."""
        heard = self._groups[name]
        unheard = [
            source for source, known in sorted(self._positions.items())
            if source not in heard
            or (heard[source].begun, heard[source].past) != (self._begun[source], known.past)
        ]  # fmt: skip
        if unheard:
            raise lacking(name, unheard)
        self._groups[former] = {
            source: GroupPosition(applied=known.applied, past=known.past, begun=self._begun[source])
            for source, known in self._positions.items()
        }
        del self._groups[name]
        for source, one in heard.items():
            if source in self._positions:
                self._change(source, applied=one.applied)


@dataclasses.dataclass(slots=True, kw_only=True)
class GroupPosition:
    """How far a group has a source that it hears."""

    applied: int
    past: int
    begun: int


class MemoryGroupIndex(MemoryIndex):
    """The index of another one as a group has it.

    Large because it is all that is known of a log.
    """

    def __init__(self, of: MemoryIndex, name: str) -> None:
        super().__init__()
        self._of = of
        self._name = name

    @property
    def _heard(self) -> dict[str, GroupPosition]:
        if self._name not in self._of._groups:
            raise StateTaken(f"group {self._name} was retired", hint="`kuvasz cluster groups` lists those there are")
        return self._of._groups[self._name]

    @property
    @override
    def group(self) -> str:
        """See `LogIndex.group`."""
        return self._name

    @override
    def open(self) -> LogLease:
        """See `LogIndex.open`."""
        self._of._groups.setdefault(self._name, {})
        self._opened += 1
        return LogLease("", self._opened)

    @override
    def positions(self) -> dict[str, StagedPosition]:
        """See `LogIndex.positions`."""
        return {
            source: dataclasses.replace(self._of._positions[source], applied=one.applied)
            for source, one in self._heard.items() if self._is_of_now(source)
        }  # fmt: skip

    def _is_of_now(self, source: str) -> bool:
        known, one = self._of._positions.get(source), self._heard.get(source)
        if known is None or one is None:
            return False
        return (known.past, self._of._begun[source]) == (one.past, one.begun)

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        known = self._of._positions.get(source)
        if known is None:
            raise StateError(f"{self.place}: nothing is staged of {source}", hint="it is tried again")
        self._heard[source] = GroupPosition(applied=known.applied, past=known.past, begun=self._of._begun[source])

    @override
    def rejoin(self, source: str) -> bool:
        """See `LogIndex.rejoin`."""
        known, one = self._of._positions.get(source), self._heard.get(source)
        if known is None or one is None or one.begun != self._of._begun[source]:
            return False
        one.past = known.past
        return True

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        if source in self._heard:
            self._heard[source].applied = min(self._heard[source].applied, lsn)

    @override
    def slices(self, source: str, after: int, *, through: int, most: int) -> list[StagedSlice]:
        """See `LogIndex.slices`."""
        return self._of.slices(source, after, through=through, most=most)

    @override
    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> RemovalRound:
        """See `LogIndex.applied`."""
        for source, lsn in lsns.items():
            if self._is_of_now(source):
                self._heard[source].applied = max(self._heard[source].applied, lsn)
        return self._of._shortened(removed, most)

    @override
    def objects(self) -> Collection[str]:
        """See `LogIndex.objects`."""
        return self._of.objects()

    @override
    def needed(self, most: int = 1000) -> Collection[str]:
        """See `LogIndex.needed`."""
        return self._of.needed(most)

    @override
    def lies_in(self) -> str | None:
        """See `LogIndex.lies_in`."""
        return self._of.lies_in()

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        self._heard.pop(source, None)

    @override
    def withdraw(self, source: str) -> None:
        """See `LogIndex.withdraw`."""
        self._heard.pop(source, None)

    @override
    def wanted(self) -> Collection[str]:
        """See `LogIndex.wanted`."""
        return set(self._heard)

    @override
    def give(self, source: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """See `LogIndex.give`."""
        if not is_again:
            prove_order(source, order, self.orders().get(source), self.positions().get(source))
        return True

    @override
    def orders(self) -> dict[str, GivenOrder]:
        """See `LogIndex.orders`."""
        return self._of.orders()

    @override
    def answers(self) -> dict[str, StreamAnswer]:
        """See `LogIndex.answers`."""
        return self._of.answers()

    @override
    def unread(self) -> Collection[str]:
        """See `LogIndex.unread`."""
        return self._of.unread()

    @override
    def groups(self) -> list[LogGroup]:
        """See `LogIndex.groups`."""
        return self._of.groups()


__all__ = ["GroupPosition", "MemoryGroupIndex", "MemoryIndex"]
