"""What is looked at now and then while one source streams."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError, SourceTooLarge
from kuvasz.source import conninfo
from kuvasz.state.tables import State
from kuvasz.sync import watches
from kuvasz.sync.beside import Beside, ErrandClock
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.watches import Watches
from tests.support.scene import Scene


class World(Scene):
    """A scene whose looks are counted, and fail as told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.looked: list[str] = []
        self.failures = 0
        self.due: list[str] = []
        self.unfit: set[str] = set()
        self.asked_unfit: list[bool] = []
        self.inserts_since: int | None = None
        self.closed = 0
        self.fitted: list[tuple[list[str], list[Any]]] = []
        patrol: Any = SimpleNamespace(look=self._look, proved_lsn=0, seen_lsn=0, bare=frozenset())
        self.proved = patrol
        self.noted: list[int] = []
        self.are_published, self.are_any_away = True, False
        partitions: Any = SimpleNamespace(
            look=lambda: self._note("partitions"), has_any=True, proved_lsn=None, is_stream_stale=False
        )
        self.partitions = partitions
        publications: Any = SimpleNamespace(
            patrol=self._look_at_publications,
            inserts_since=lambda: self.inserts_since,
            are_any_away=self._are_any_away,
            turn=threading.Lock(),
            fit=lambda _, usable, specs: self.fitted.append(([spec.key for spec, _ in usable], specs)),
        )
        preparation: Any = SimpleNamespace(unfit=self.unfit)
        slot: Any = SimpleNamespace(looked=self.noted.append)
        upgrade: Any = SimpleNamespace(
            look=lambda _: self.rests.append("looked"), found_whole=lambda: self.rests.append("whole"),
            note_rest=lambda: self.rests.append("noted"),
        )  # fmt: skip
        self.rests: list[str] = []
        self.watches = Watches(
            self.context, patrol, partitions, publications, preparation, slot, upgrade, asyncio.Lock()
        )

    def _note(self, what: str) -> None:
        self.looked.append(what)
        if self.failures:
            self.failures -= 1
            raise SourceError("the server does not answer")

    def _are_any_away(self) -> bool:
        assert threading.current_thread() is not threading.main_thread(), (
            "the lake may be asked, which takes its time"
        )
        return self.are_any_away

    def close(self) -> None:
        self.closed += 1

    def _look_at_publications(self, connection: object) -> bool:
        assert connection is self
        self._note("publications")
        return self.are_published

    def _look(self, connection: object, unfit: Callable[[Any], bool]) -> list[str]:
        assert connection is self
        self.asked_unfit = [unfit(spec) for spec in self.source.tables]
        self._note("tables")
        return self.due


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for pause in ("PATROL_S", "_PARTITIONS_S", "_LOOK_S"):
        monkeypatch.setattr(watches, pause, 0.001)
    made = World(tmp_path)
    monkeypatch.setattr(conninfo, "connect", lambda _: made)
    return made


def live(world: World, watch: Callable[[Beside], None], until: Callable[[], bool]) -> None:
    """Have a watch look until something is so, and as its source ends."""

    async def run() -> None:
        world.lifetime.begin()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            beside = Beside(tasks, ErrandClock(), "kuvasz")
            try:
                watch(beside)
                while not until():  # noqa: ASYNC110 (a condition, not an event)
                    await asyncio.sleep(0.001)
                world.lifetime.end()
                world.watches.end()
                await asyncio.sleep(0.1)
            finally:
                beside.end()

    asyncio.run(run())


def wait(world: World, inserts: Coroutine[Any, Any, None], until: Callable[[], bool]) -> None:
    """Have the stream wait for INSERTs until something is so, and its source ends."""

    async def run() -> None:
        world.lifetime.begin()
        task = asyncio.ensure_future(inserts)
        async with asyncio.timeout(30):
            while not until() and not task.done():  # noqa: ASYNC110 (a condition, not an event)
                await asyncio.sleep(0.001)
            world.lifetime.end()
            await task

    asyncio.run(run())


def test_the_patrol_has_tables_looked_at_anew_and_ends_with_its_source(world: World) -> None:
    world.due, added = ["shop.items"], []
    world.requests.add = added.append  # type: ignore[method-assign]
    world.unfit.add("shop.others")
    live(world, world.watches.patrol, lambda: world.looked.count("publications") > 1)
    assert set(added) == {"shop.items"}
    assert world.asked_unfit == [False, True]


@pytest.mark.parametrize(
    ("proved_lsn", "in_partitions", "are_published", "are_any_away", "noted"),
    [
        (900, None, True, False, {900}), (0, None, True, False, set()), (900, None, False, False, set()),
        (900, 700, True, False, {700}), (700, 900, True, False, {700}), (900, 0, True, False, set()),
        (900, None, True, True, set()),
    ],
)  # fmt: skip
def test_how_far_no_row_is_missing_is_noted_where_all_looks_say_so(
    world: World,
    proved_lsn: int,
    in_partitions: int | None,
    are_published: bool,
    are_any_away: bool,
    noted: set[int],
) -> None:
    world.proved.proved_lsn, world.partitions.proved_lsn = proved_lsn, in_partitions
    world.are_published, world.are_any_away = are_published, are_any_away
    live(world, world.watches.patrol, lambda: world.looked.count("publications") > 2)
    assert set(world.noted) == noted


def test_a_paused_table_whose_updates_would_fail_is_published_no_more(world: World) -> None:
    for spec in world.source.tables:
        world.source_tables.tables[spec.key] = world.table(spec)
    world.states.pause("shop.items", world.source.name)
    world.proved.bare = frozenset({world.items.key})
    live(world, world.watches.patrol, lambda: bool(world.fitted))
    assert world.fitted[0] == ([world.others.key], [])
    assert set(world.source_tables.tables) == {world.others.key}


def test_a_table_that_has_gone_since_the_look_is_no_mistake(world: World) -> None:
    """As a member whose table is dropped, which another thread sees, while others wait to be moved."""
    for spec in world.source.tables:
        world.source_tables.tables[spec.key] = world.table(spec)
    world.proved.bare = frozenset({"shop.gone/7"})
    live(world, world.watches.patrol, lambda: len(world.fitted) > 1)
    assert set(world.source_tables.tables) == {world.items.key, world.others.key}


def test_no_task_waits_for_the_turn_to_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand sources most do, nearly all the time."""
    turns, tasks = iter([0.2, 0.0]), list[str]()
    monkeypatch.setattr(world.shared.threads, "turn_to_look", lambda: next(turns, 1000.0))

    def is_waiting_for_long() -> bool:
        if world.watches._turn_s:
            tasks.extend(task.get_name() for task in asyncio.all_tasks())
        return world.watches._turn_s == 1000

    began_at = time.monotonic()
    live(world, world.watches.patrol, is_waiting_for_long)
    assert time.monotonic() > began_at + 0.2
    assert tasks.count("patrol kuvasz") <= 2, "as it begins to look"
    assert len(tasks) > 20
    assert world.looked == ["tables", "publications"] * 2, "when the turn has come, and at once; not as it ends"


@pytest.mark.parametrize("is_following", [True, False])
def test_what_a_start_has_doubts_of_is_looked_at_soon(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_following: bool
) -> None:
    """Of a table that follows; of another one a look has nothing to say."""
    monkeypatch.setattr(watches, "PATROL_S", 1000)
    monkeypatch.setattr(watches, "_SOON_S", 0.001)
    world.source_tables.put_off[Evidence.FILE].add(world.items.key)
    if is_following:
        world.states.activate("shop.items", world.source.name, 1)
        world.source_tables.set(world.items, State.STREAMING)
    since = time.monotonic()
    live(
        world,
        world.watches.patrol,
        lambda: len(world.looked) > 2 or time.monotonic() > since + 0.1 + is_following * 20,
    )
    assert (len(world.looked) > 2) is is_following, "one look at the end"


def test_a_source_is_looked_at_once_more_as_it_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next start knows that nothing was missing up to there."""
    monkeypatch.setattr(watches, "PATROL_S", 1000)
    live(world, world.watches.patrol, lambda: True)
    assert world.looked == ["tables", "publications"]


def test_a_look_that_fails_is_followed_by_the_next(world: World) -> None:
    world.failures = 2
    live(world, world.watches.patrol, lambda: "publications" in world.looked)
    assert world.looked[:3] == ["tables", "tables", "tables"]
    assert world.closed >= 3, "no session is left"


def test_partitions_are_looked_at_whatever_a_look_comes_to(world: World) -> None:
    world.failures = 2
    live(world, world.watches.partitions, lambda: len(world.looked) > 3)
    assert set(world.looked) == {"partitions"}


def test_a_stream_that_is_stale_goes_on_in_another_connection(world: World) -> None:
    rewound: list[None] = []
    world.context.current.rewind()
    reader: Any = SimpleNamespace(rewind=lambda: rewound.append(None))
    world.context.current.reader = reader
    live(world, world.watches.partitions, lambda: len(world.looked) > 2)
    assert not rewound
    world.partitions.is_stream_stale = True
    live(world, world.watches.partitions, lambda: bool(rewound))


def test_nobody_looks_where_nothing_has_partitions(world: World) -> None:
    began_at = time.monotonic()
    world.partitions.has_any = False
    live(world, world.watches.partitions, lambda: time.monotonic() > began_at + 0.1)
    assert world.looked == []
    world.partitions.has_any = True
    live(world, world.watches.partitions, lambda: bool(world.looked))


def reader(confirmed_lsn: int) -> Any:
    stopped: list[bool] = []
    return SimpleNamespace(
        facts=SimpleNamespace(confirmed_lsn=confirmed_lsn), stop=lambda: stopped.append(True), stopped=stopped
    )


def often(times: int = 20) -> Callable[[], bool]:
    """Return what is so when it was asked some times."""
    asked = itertools.count(1)
    return lambda: next(asked) > times


@pytest.mark.parametrize(
    ("since", "confirmed", "is_begun_again"), [(None, 900, False), (800, 700, False), (800, 800, True)]
)
def test_the_stream_begins_again_when_it_may_name_the_inserts(
    world: World, since: int | None, confirmed: int, *, is_begun_again: bool
) -> None:
    world.inserts_since, read, start = since, reader(confirmed), SimpleNamespace(is_waiting=True)
    wait(world, world.watches.inserts(read, start), often())  # type: ignore[arg-type]
    assert read.stopped == [True] * is_begun_again


def test_a_copy_is_not_torn_for_that(world: World) -> None:
    world.inserts_since, read, start = 800, reader(900), SimpleNamespace(is_waiting=True)
    world.source_tables.set(world.items, State.COPYING)
    wait(world, world.watches.inserts(read, start), often())  # type: ignore[arg-type]
    assert read.stopped == []


def test_where_nobody_waits_for_them_there_is_nothing_to_look_for(world: World) -> None:
    start = SimpleNamespace(is_waiting=False)
    wait(world, world.watches.inserts(reader(0), start), lambda: False)  # type: ignore[arg-type]


@pytest.mark.parametrize("watch", ["partitions", "patrol"])
def test_a_source_that_makes_tables_without_end_does_not_go_on_without_them(world: World, watch: str) -> None:
    def look(*_: object) -> None:
        raise SourceTooLarge("10,001 tables of it are shop.events")

    world.partitions.look, world.partitions.has_any = look, True
    world.proved.look = look
    with pytest.raises(BaseExceptionGroup) as caught:
        live(world, getattr(world.watches, watch), lambda: False)
    assert caught.value.subgroup(SourceTooLarge) is not None
