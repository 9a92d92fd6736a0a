"""Deliveries of many sources become the work of one mini-transaction, per target. Pure."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

from kuvasz.config import names
from kuvasz.model import Delivery, Relation, Replay, Segment, Truncation
from kuvasz.ports import TableWork
from kuvasz.route import parts
from kuvasz.tracing.mini_transaction import Times

#: (source, relation) -> its targets, each with the name it knows the relation's source by: none if the map has none.
TargetsOf = Callable[[str, Relation], Iterable[tuple[str, str]]]

#: (target, source, epoch) -> whether changes that came with this connection are to be applied now.
IsActive = Callable[[str, str, int], bool]


#: (target, source, epoch) -> whether changes that came with this connection are to be parked.
Parks = Callable[[str, str, int], bool]

#: (target, source, epoch) -> LSN at which changes that came with this connection end to be applied; None: nowhere.
End = Callable[[str, str, int], int | None]

#: (target, source, number) -> whether the deliveries of this replay are to be applied now.
IsReplaying = Callable[[str, str, int], bool]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToPark:
    """What a delivery held for a target that is parked."""

    target: str
    source: str
    epoch: int
    changes: tuple[Segment | Truncation, ...]
    through: int
    is_open: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One mini-transaction."""

    works: tuple[TableWork, ...]
    through: dict[str, tuple[int, int]]  #: source -> LSN that is durable in this worker when all of it is, epoch
    bytes_of: Mapping[str, int]  #: source -> bytes of its deliveries
    to_park: tuple[ToPark, ...] = ()  #: in the order of the stream; to be parked before `through` is durable
    replays: tuple[tuple[str, Replay], ...] = ()  #: (source, replay) of the works that come from a parking log
    times: Times | None = None  #: where it is traced

    @property
    def bytes(self) -> int:
        """The bytes of all deliveries."""
        return sum(self.bytes_of.values())


def _never(*_: object) -> bool:
    return False


def _nowhere(*_: object) -> None:
    return None


class _Gathering:
    """What a mini-transaction has taken so far."""

    def __init__(self) -> None:
        # source -> (target, name) whose transaction, as it came live, earlier mini-transactions began
        self.begun: dict[str, frozenset[tuple[str, str]]] = {}
        self.changes: dict[str, list[Segment | Truncation]] = {}
        self.touched: dict[str, dict[str, int]] = {}
        self.abandoned: dict[str, set[str]] = {}
        # source -> (target, name) whose open transaction ended here
        self.closed: dict[str, set[tuple[str, str]]] = {}
        self.to_park: list[ToPark] = []
        self.replays: list[tuple[str, Replay]] = []
        self._parked: dict[tuple[str, str], tuple[list[Segment | Truncation], int]] = {}

    def add_parked(self, target: str, source: str, changes: Iterable[Segment | Truncation], through: int) -> None:
        """Add what was parked of a target."""
        taken, _ = self._parked.get((target, source), ([], 0))
        taken.extend(changes)
        self._parked[target, source] = taken, through
        self.changes.setdefault(target, []).extend(changes)
        self.touched.setdefault(target, {})[source] = through

    def parked_through(self, target: str, source: str) -> int:
        """Return the LSN before which all of a source was taken from what was parked of a target; 0 for nothing."""
        return self._parked.get((target, source), ([], 0))[1]

    def restart(self, source: str, broken: Iterable[tuple[str, str]]) -> None:
        """Undo what was taken of a source's stream: all of it comes again. What was parked does not."""
        for target, taken in self.changes.items():
            kept, _ = self._parked.get((target, source), ([], 0))
            mine = set(map(id, kept))
            self.changes[target] = [
                change for change in taken if names.source_of(change.source) != source or id(change) in mine
            ]
        for target, sources in self.touched.items():
            for name in [name for name in sources if names.source_of(name) == source]:
                if (target, name) in self._parked:
                    sources[name] = self._parked[target, name][1]
                else:
                    del sources[name]
        # Not what began in this one: the part that an earlier one left open may be of a log, and goes on.
        for target, name in {*broken, *self.closed.pop(source, ())} & self.begun.get(source, frozenset()):
            self.abandoned.setdefault(target, set()).add(name)


class Gatherer:
    """Remembers, between mini-transactions, which targets hold parts of an unfinished transaction.

    Args:
        parks: Asked about targets that do not follow.
        is_replaying: Asked about deliveries that come from a parking log.
        end: Asked about targets that follow.
    """

    def __init__(self, parks: Parks = _never, is_replaying: IsReplaying = _never, end: End = _nowhere) -> None:
        self._parks = parks
        self._is_replaying = is_replaying
        self._end = end
        self._epochs: dict[str, int] = {}
        # source -> (target, name of the source there) -> commit LSN of what the lake has a part of
        self._open: dict[str, dict[tuple[str, str], int]] = {}
        self._parked_open: dict[str, dict[str, int]] = {}  # the same of targets, in their parking logs
        self._replayed_open: dict[tuple[str, str], int] = {}  # (target, source) -> number of the replay

    def gather(self, deliveries: Iterable[Delivery], targets_of: TargetsOf, is_active: IsActive) -> Gathered:
        """Sort deliveries by target.

        Whether a target follows a source is asked once: were it paused in between, its position would pass the
        changes that were left out.
        """
        asked = functools.cache(is_active)
        batch = _Gathering()
        through: dict[str, tuple[int, int]] = {}
        sizes: collections.Counter[str] = collections.Counter()
        self._abandon_stopped(batch, asked)
        for delivery in deliveries:
            source = delivery.source
            sizes[source] += delivery.bytes
            if delivery.replay is not None:
                self._take_replay(batch, delivery, delivery.replay)
                continue
            through[source] = (delivery.through, delivery.epoch)
            if delivery.epoch != self._epochs.setdefault(source, delivery.epoch):
                self._epochs[source] = delivery.epoch
                self._parked_open.pop(source, None)
                # All that this mini-transaction already took of the source comes again: nothing of it is durable.
                batch.restart(source, self._open.pop(source, {}))
            self._take(batch, delivery, targets_of, asked)
        works = [
            TableWork(
                target=target,
                changes=tuple(batch.changes.get(target, ())),
                through=batch.touched.get(target, {}),
                open_sources=self._open_sources(target),
                abandoned=frozenset(batch.abandoned.get(target, ())),
            )
            for target in sorted(batch.touched.keys() | batch.abandoned.keys())
        ]
        return Gathered(
            works=tuple(works), through=through, bytes_of=sizes,
            to_park=tuple(batch.to_park), replays=tuple(batch.replays),
        )  # fmt: skip

    def has_parts(self, target: str, is_active: IsActive) -> bool:
        """Whether the next mini-transaction gives up parts of a transaction of a target. From any thread.

        Those of a target that has stopped following: see `_abandon_stopped`.
        """
        replayed = tuple(self._replayed_open.items())
        live = [(source, tuple(open_in)) for source, open_in in tuple(self._open.items())]
        stopped = [name for (name, source), number in replayed if not self._is_replaying(name, source, number)]
        for source, pairs in live:
            stopped += [name for name, of in pairs if not is_active(name, of, self._epochs[source])]
        return target in stopped

    def _take(self, batch: _Gathering, delivery: Delivery, targets_of: TargetsOf, asked: IsActive) -> None:
        source = delivery.source
        targets = self._ended(batch, delivery)
        parked: dict[str, list[Segment | Truncation]] = {}
        routed = (
            (change, target, name)
            for change in delivery.changes
            for target, name in targets_of(source, change.relation)
        )
        for change, target, name in routed:
            if asked(target, name, delivery.epoch):
                end = self._end(target, name, delivery.epoch)
                within = change if end is None else parts.older(change, end)
                if within is None:
                    continue
                targets.add((target, name))
                # The reader went back to what is confirmed: what the log brought comes again. The lake, which knows
                # of such rows by its position, cannot tell while both are in one mini-transaction.
                floor = batch.parked_through(target, name)
                left = parts.newer(within, floor - 1) if floor else within
                if left is not None:
                    if delivery.is_open and (open_lsn := parts.open_lsn(left)):
                        self._open.setdefault(source, {})[target, name] = open_lsn
                    taken_as = left if name == source else dataclasses.replace(left, source=name)
                    batch.changes.setdefault(target, []).append(taken_as)
            elif self._parks(target, name, delivery.epoch):
                parked.setdefault(target, []).append(change)
        if parked or self._parked_open.get(source):
            batch.to_park += self._park(delivery, parked)
        for target, name in targets:
            end = self._end(target, name, delivery.epoch)
            reached = delivery.through if end is None else min(delivery.through, end)
            through = max(reached, batch.parked_through(target, name))
            batch.touched.setdefault(target, {})[name] = through

    def _ended(self, batch: _Gathering, delivery: Delivery) -> set[tuple[str, str]]:
        """Return whose open transaction ends with a delivery; another one may begin in it."""
        open_in = self._open.get(delivery.source, {})
        ended = {pair for pair, lsn in open_in.items() if not delivery.is_open or lsn < delivery.through}
        for pair in ended:
            del open_in[pair]
        batch.closed.setdefault(delivery.source, set()).update(ended)
        return ended

    def _open_sources(self, target: str) -> frozenset[str]:
        live = {name for open_in in self._open.values() for of, name in open_in if of == target}
        return frozenset(live | {source for name, source in self._replayed_open if name == target})

    def _park(self, delivery: Delivery, parked: dict[str, list[Segment | Truncation]]) -> list[ToPark]:
        """Return what a delivery gives the parking logs; also the mere end of what they hold a part of."""
        source = delivery.source
        open_in = self._parked_open.setdefault(source, {})
        for target in [target for target, lsn in open_in.items() if not delivery.is_open or lsn < delivery.through]:
            del open_in[target]
            parked.setdefault(target, [])
        for target, changes in parked.items():
            if open_lsn := max(map(parts.open_lsn, changes), default=0):
                open_in[target] = open_lsn
        return [
            ToPark(
                target=target, source=source, epoch=delivery.epoch, changes=tuple(found), through=delivery.through,
                is_open=delivery.is_open,
            )
            for target, found in parked.items()
        ]  # fmt: skip

    def _take_replay(self, batch: _Gathering, delivery: Delivery, replay: Replay) -> None:
        """Take what was parked of a target, if it is still wanted; what follows live comes behind it."""
        target, source = replay.target, delivery.source
        if not self._is_replaying(target, source, replay.number):
            return
        batch.add_parked(target, source, delivery.changes, delivery.through)
        if delivery.is_open:
            self._replayed_open[target, source] = replay.number
        else:
            self._replayed_open.pop((target, source), None)
            batch.replays.append((source, replay))  # what is in the lake ends with a whole transaction

    def _abandon_stopped(self, batch: _Gathering, asked: IsActive) -> None:
        """Give up parts of transactions whose table has stopped following, or is replayed anew: they begin again.

        Before anything else is taken: the lake has one open transaction of a source, whichever way it came.
        """
        for (target, source), number in tuple(self._replayed_open.items()):
            if not self._is_replaying(target, source, number):
                del self._replayed_open[target, source]
                batch.abandoned.setdefault(target, set()).add(source)
        for source, open_in in self._open.items():
            epoch = self._epochs[source]
            for target, name in [pair for pair in open_in if not asked(*pair, epoch)]:
                del open_in[target, name]
                batch.abandoned.setdefault(target, set()).add(name)
            batch.begun[source] = frozenset(open_in)
