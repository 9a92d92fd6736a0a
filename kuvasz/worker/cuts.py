"""Cuts: all tables of some sources tagged at whole transactions of one moment.

A cut is one LSN of each source: all that was routed by one step of the loop, in which all workers are told to take no
more of these sources. What they have of them becomes durable; then each table shows everything before the LSNs and
nothing else, is tagged, and the workers go on. Nothing is committed for it but the tags. What comes meanwhile waits
in memory, within the budget of all that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kuvasz import failpoints, lsn
from kuvasz.config import names
from kuvasz.errors import CutRefused, KuvaszError, LakeError, place_of
from kuvasz.own_thread import in_thread
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from kuvasz.ports import Lake
    from kuvasz.state.progress import Progress
    from kuvasz.state.tables import TableStates
    from kuvasz.worker.workers import Workers

#: Seconds for which sources are held at most, tags included.
_LONGEST_S = 30.0

#: Between looks at what the workers still have.
_LOOK_S = 0.01

#: Seconds that the table of cuts is waited for.
_TELLING_S = 5.0

_WHY_LATER = "see `kuvasz status`, and make the cut when all tables stream"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeCut:
    """A cut that was made."""

    tag: str
    lsns: Mapping[str, int]  #: source -> LSN before which its tables show everything, and nothing else
    snapshots: Mapping[str, int | None]  #: target -> the snapshot that is tagged; None: the table is empty


class Cuts:
    """Makes cuts, one at a time. On the loop.

    Args:
        workers: Apply the changes.
        lake: Has the tables.
        states: Say which tables follow.
        progress: Says how far sources are.
    """

    def __init__(self, workers: Workers, lake: Lake, states: TableStates, progress: Progress) -> None:
        self._workers = workers
        self._lake = lake
        self._states = states
        self._progress = progress
        self._turn = asyncio.Lock()
        self._late: set[asyncio.Task[None]] = set()  # tags that came when nobody waited for them any more

    async def make(self, tag: str, sources: Collection[str], keep_s: float) -> LakeCut:
        """Make a cut.

        Args:
            tag: The name of the tags.
            sources: The names of the sources.
            keep_s: For how long it is kept at least.

        Raises:
            CutRefused: A table does not stream, or it took too long.
            LakeError: A tag could not be made, as where there is one of that name.
        """
        if self._turn.locked():
            raise CutRefused("another cut is being made", hint="make it again in a moment")
        async with self._turn:
            self._refuse_unless_streaming(sources)
            lsns = {source: self._progress.received_lsn(source) for source in sources}
            epochs = {source: self._progress.epoch(source) for source in sources}
            for worker in self._workers.all:
                worker.cut(sources)
            try:
                async with asyncio.timeout(_LONGEST_S):
                    made = await self._made(tag, keep_s, lsns, epochs)
            except TimeoutError:
                raise CutRefused(
                    f"tables were not where their sources are within {_LONGEST_S:.0f} s",
                    hint="make it again; a shorter `pipeline.commit_interval` has less under way",
                ) from None
            finally:
                for worker in self._workers.all:
                    worker.go_on()
            await self._tell()
            return made

    async def _tell(self) -> None:
        """Have the table of cuts say so before anybody is told; a catalog that does not answer keeps nobody."""
        writing = in_thread(lambda: self._lake.about.write("cuts"), "cuts")
        await asyncio.wait({asyncio.wrap_future(writing)}, timeout=_TELLING_S)

    async def _made(self, tag: str, keep_s: float, lsns: Mapping[str, int], epochs: Mapping[str, int]) -> LakeCut:
        targets = sorted({state.target for state in self._states.snapshot() if state.database in lsns})
        await self._settle(lsns, targets)
        tagged: dict[str, int | None] = {}
        try:
            self._refuse_unless_there(lsns, epochs)
            for target in targets:
                tagged[target] = await self._tag(target, tag, keep_s)
                failpoints.hit("cut_tagged", LakeError)
            self._refuse_unless_there(lsns, epochs)
        except BaseException:
            await self._remove(tag, [target for target, snapshot in tagged.items() if snapshot is not None])
            raise
        made = LakeCut(tag=tag, lsns=lsns, snapshots=tagged)
        self._lake.about.tell("cuts", self._rows(made, keep_s))
        return made

    def _rows(self, made: LakeCut, keep_s: float) -> Iterator[Mapping[str, object]]:
        """Yield what is kept of a cut: a row for each of its tables."""
        sources: dict[str, set[str]] = {}
        for state in self._states.snapshot():
            sources.setdefault(state.target, set()).add(state.database)
        at = datetime.datetime.now(datetime.UTC)
        for target, snapshot in sorted(made.snapshots.items()):
            of_target = sorted(sources.get(target, set()) & made.lsns.keys())
            yield {
                "made_at": at,
                "cut": made.tag.removeprefix(names.CUT_PREFIX),
                "tag": made.tag,
                "target": target,
                "snapshot_id": snapshot,
                "lsns": [(source, lsn.render(made.lsns[source])) for source in of_target],
                "kept_until": at + datetime.timedelta(seconds=keep_s),
            }

    async def _tag(self, target: str, tag: str, keep_s: float) -> int | None:
        """Tag a table; a tag that comes too late is removed again."""
        adding = asyncio.ensure_future(asyncio.to_thread(self._lake.tags.add, target, tag, keep_s))
        try:
            return await asyncio.shield(adding)
        except asyncio.CancelledError:
            late = asyncio.create_task(self._remove_late(adding, target, tag), name=f"late tag of {target}")
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise

    async def _remove_late(self, adding: asyncio.Future[int | None], target: str, tag: str) -> None:
        with contextlib.suppress(KuvaszError):
            if await adding is not None:
                await asyncio.to_thread(self._lake.tags.remove, target, tag)

    async def _settle(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Wait until all that was routed before the cut is durable."""
        workers = tuple(self._workers.all)
        await _until(lambda: all(worker.has_begun_all(sources) for worker in workers))
        begun = [worker.begun() for worker in workers]
        for target in targets:
            number = self._workers.number_of(target)
            if number < len(workers):  # else it went to a new one, and its sources are being read again
                await _until(functools.partial(workers[number].has_ended, begun[number], target))

    def _refuse_unless_streaming(self, sources: Collection[str]) -> None:
        for state in self._states.snapshot():
            if state.database in sources and state.state is not State.STREAMING:
                message = f"{place_of(state.database, state.label)}: it is {state.state.value}"
                raise CutRefused(message, hint=_WHY_LATER)

    def _refuse_unless_there(self, lsns: Mapping[str, int], epochs: Mapping[str, int]) -> None:
        """Refuse where a table shows less or more than the cut: it stopped, or its source is being read again.

        So is one that left the map meanwhile, whose tables nobody knows any more: what waited of it was dropped.
        """
        self._refuse_unless_streaming(lsns)
        for source, epoch in epochs.items():
            if self._progress.epoch(source) != epoch:
                raise _read_again(place_of(source), lsns[source])
        for state in self._states.snapshot():
            source = state.database
            if source not in lsns:
                continue
            at = self._lake.position(state.target, state.source)
            if at is None or at.lsn > lsns[source]:
                raise _read_again(place_of(source, state.label), lsns[source])

    async def _remove(self, tag: str, targets: Collection[str]) -> None:
        """Remove the tags of a cut that was not made; one that cannot be goes when its time is over."""
        for target in targets:
            with contextlib.suppress(KuvaszError):
                await asyncio.to_thread(self._lake.tags.remove, target, tag)


def _read_again(place: str, from_lsn: int) -> CutRefused:
    message = f"{place}: its source is being read again from before {lsn.render(from_lsn)}"
    return CutRefused(message, hint="make the cut in a moment")


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (told in workers' threads, and rarely waited for)
        await asyncio.sleep(_LOOK_S)


__all__ = ["Cuts", "LakeCut"]
