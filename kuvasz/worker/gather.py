"""Deliveries of many sources become the work of one mini-transaction, per target. Pure."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

from kuvasz.model import Delivery, Relation, Segment, Truncation
from kuvasz.ports import TableWork

#: (source, relation) -> target, None if the map has none.
TargetOf = Callable[[str, Relation], str | None]

#: (target, source, epoch) -> whether changes that came with this connection are to be applied now.
IsActive = Callable[[str, str, int], bool]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One mini-transaction."""

    works: tuple[TableWork, ...]
    through: dict[str, tuple[int, int]]  #: source -> LSN that is durable in this worker when all of it is, epoch
    bytes: int


class Gatherer:
    """Remembers, between mini-transactions, which targets hold parts of an unfinished transaction."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._open: dict[str, set[str]] = {}

    def gather(self, deliveries: Iterable[Delivery], target_of: TargetOf, is_active: IsActive) -> Gathered:
        """Sort deliveries by target.

        Whether a target follows a source is asked once: were it paused in between, its position would pass the
        changes that were left out.
        """
        asked = functools.cache(is_active)
        changes: dict[str, list[Segment | Truncation]] = {}
        touched: dict[str, dict[str, int]] = {}
        abandoned: dict[str, set[str]] = {}
        closed: dict[str, set[str]] = {}  # source -> targets whose open transaction ended in this mini-transaction
        through: dict[str, tuple[int, int]] = {}
        size = 0
        for delivery in deliveries:
            source = delivery.source
            size += delivery.bytes
            through[source] = (delivery.through, delivery.epoch)
            if delivery.epoch != self._epochs.setdefault(source, delivery.epoch):
                self._epochs[source] = delivery.epoch
                # All that this mini-transaction already took of the source comes again: nothing of it is durable.
                for name, taken in changes.items():
                    changes[name] = [change for change in taken if change.source != source]
                for sources in touched.values():
                    sources.pop(source, None)
                for broken in self._open.pop(source, set()) | closed.pop(source, set()):
                    abandoned.setdefault(broken, set()).add(source)
            targets = set()
            for paused in [name for name in self._open.get(source, ()) if not asked(name, source, delivery.epoch)]:
                # It stopped following in the middle of a transaction, which begins again when it follows again.
                self._open[source].discard(paused)
                abandoned.setdefault(paused, set()).add(source)
            for change in delivery.changes:
                target = target_of(source, change.relation)
                if target is not None and asked(target, source, delivery.epoch):
                    changes.setdefault(target, []).append(change)
                    targets.add(target)
            if delivery.is_open:
                self._open.setdefault(source, set()).update(targets)
            else:
                ended = self._open.pop(source, set())
                closed.setdefault(source, set()).update(ended)
                targets |= ended
            for target in targets:
                touched.setdefault(target, {})[source] = delivery.through
        works = [
            TableWork(
                target=target,
                changes=tuple(changes.get(target, ())),
                through=touched.get(target, {}),
                open_sources=frozenset(source for source, open_in in self._open.items() if target in open_in),
                abandoned=frozenset(abandoned.get(target, ())),
            )
            for target in sorted(touched.keys() | abandoned.keys())
        ]
        return Gathered(works=tuple(works), through=through, bytes=size)
