"""What is remembered from one look to the next: freshness, silence and standstill, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin import observer
from kuvasz.admin.observer import Observer, Snapshot
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.source.slots import Clock
from kuvasz.state.progress import Durable
from kuvasz.state.tables import State
from kuvasz.view import View
from tests.support.snapshots import NOW, SLOT, SOURCE, TABLE

AT_US = int(NOW * 1e6) - POSTGRES_EPOCH_US

QUIET = View(phase="running", sources=(SOURCE,), tables=(TABLE,), waiting_bytes=0, commit_conflicts=0)


class World:
    """An application that is as it is told, and a clock."""

    def __init__(self) -> None:
        self.clock, self.wall = 5_000.0, NOW
        self.view = QUIET
        self.watch = SimpleNamespace(facts={"shop_eu": SLOT}, run=self._watch)
        app: Any = SimpleNamespace(
            view=lambda: self.view, budget=SimpleNamespace(high_bytes=77),
            sources=[SimpleNamespace(source=SimpleNamespace(name="shop_eu"))],
        )  # fmt: skip
        watch: Any = self.watch
        self.observer = Observer(app, watch, clock=lambda: self.clock, wall=lambda: self.wall)

    async def _watch(self) -> None:
        await asyncio.Event().wait()

    def see(self, *, table: dict | None = None, phase: str = "running", **source: Any):
        """Look at an application whose source, or table, differs from a good day."""
        self.view = dataclasses.replace(
            QUIET, phase=phase, sources=(dataclasses.replace(SOURCE, **source),),
            tables=(dataclasses.replace(TABLE, **(table or {})),),
        )  # fmt: skip
        return self.observer.snapshot()

    def pass_s(self, seconds: float) -> None:
        self.clock += seconds
        self.wall += seconds


@pytest.fixture
def world() -> World:
    return World()


def test_a_source_whose_wal_is_all_in_the_lake_has_no_lag(world: World) -> None:
    seen = world.see(confirmable_lsn=SLOT.wal_end)
    assert seen.facts["shop_eu"].fresh_at == SLOT.asked_at
    assert (seen.lag_seconds(seen.view.sources[0]), seen.lag_bytes(seen.view.sources[0])) == (0.0, 0)
    assert seen.memory_bytes == 77


def test_what_is_missing_makes_it_as_old_as_the_last_that_is_there(world: World) -> None:
    world.see(confirmable_lsn=SLOT.wal_end)
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, wal_end=0x900, asked_at=NOW + 7)}
    world.pass_s(20)
    seen = world.see(confirmable_lsn=SLOT.wal_end)
    assert seen.lag_bytes(seen.view.sources[0]) == 0x900 - SLOT.wal_end
    assert seen.lag_seconds(seen.view.sources[0]) == NOW + 20 - SLOT.asked_at
    seen = world.see(confirmable_lsn=0x900)
    assert seen.lag_seconds(seen.view.sources[0]) == 0.0


def test_commit_times_count_between_two_questions(world: World) -> None:
    world.watch.facts = {}
    world.see()
    seen = world.see(received_lsn=0x600, confirmable_lsn=0x600, commit_us=AT_US)
    assert seen.facts["shop_eu"].fresh_at == NOW


def test_a_new_connection_does_not_take_over_the_commit_time_of_the_one_before(world: World) -> None:
    """The reader went back between two looks: what it heard last is still to come again."""
    world.watch.facts = {}
    world.see()
    seen = world.see(epoch=2, received_lsn=0x500, confirmable_lsn=0x500, commit_us=AT_US)
    assert seen.facts["shop_eu"].fresh_at is None
    seen = world.see(epoch=2, received_lsn=0x600, confirmable_lsn=0x600, commit_us=AT_US + 5_000_000)
    assert seen.facts["shop_eu"].fresh_at == NOW + 5


def valid_through(seen: Snapshot) -> float | None:
    source, table = seen.view.sources[0], seen.view.tables[0]
    return seen.valid_through(source, seen.durable_lsn(source, table))


def test_valid_through_goes_by_the_clock_of_the_source_and_moves_while_it_is_idle(world: World) -> None:
    for seconds in (0, 10):
        clock = Clock(at=NOW - 3_600 + seconds, insert_lsn=0x510)
        world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, clock=clock)}
        seen = world.see(confirmable_lsn=0x510, durable=Durable(confirmable=0x510, received=0x510))
        assert valid_through(seen) == NOW - 3_600 + seconds - 1, "a commit takes its time before its place in the WAL"


def test_of_a_standby_nobody_knows_the_time_of_the_primary(world: World) -> None:
    assert valid_through(world.see(confirmable_lsn=SLOT.wal_end)) is None


def test_a_table_is_valid_through_what_it_has_whatever_holds_its_source(world: World) -> None:
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, clock=Clock(at=NOW, insert_lsn=0x500))}
    world.see(confirmable_lsn=0x500)
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, clock=Clock(at=NOW + 9, insert_lsn=0x900))}
    held = Durable(confirmable=0x500, received=0x900, held=frozenset({"shop.other"}))
    assert valid_through(world.see(confirmable_lsn=0x500, durable=held)) == NOW + 9 - 1
    mine = dataclasses.replace(held, held=frozenset({"shop.items"}))
    assert valid_through(world.see(confirmable_lsn=0x500, durable=mine)) == NOW - 1


@pytest.mark.parametrize("state", ["error", "waiting", "connecting", "starting"])
def test_what_a_server_says_counts_only_while_its_stream_is_followed(world: World, state: str) -> None:
    """It was restored from an older backup, and writes again: its LSNs are such that the lake had long ago."""
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, clock=Clock(at=NOW, insert_lsn=0x500))}
    before = world.see(confirmable_lsn=0x500)
    assert (valid_through(before), before.facts["shop_eu"].fresh_at) == (NOW - 1, SLOT.asked_at)
    world.pass_s(600)
    restored = Clock(at=NOW + 600, insert_lsn=0x400)
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, clock=restored, wal_end=0x400, asked_at=NOW + 600)}
    seen = world.see(state=state, confirmable_lsn=0x500)
    assert seen.facts["shop_eu"].fresh_at == SLOT.asked_at
    assert seen.lag_seconds(seen.view.sources[0]) == NOW + 600 - SLOT.asked_at
    assert valid_through(seen) == (None if state == "error" else NOW - 1)


def test_of_tables_whose_source_waits_for_a_person_nobody_says_how_far_they_are(world: World) -> None:
    seen = world.see(state="error", error="it was restored from a backup", confirmable_lsn=0x500)
    assert seen.durable_lsn(seen.view.sources[0], seen.view.tables[0]) is None


def test_of_a_source_whose_first_copies_are_made_there_is_no_lag(world: World) -> None:
    """What may be confirmed begins where its slot does, and its server writes nothing meanwhile."""
    seen = world.see(state="starting", epoch=0, received_lsn=0, confirmable_lsn=SLOT.wal_end)
    assert seen.lag_seconds(seen.view.sources[0]) is None


@pytest.mark.parametrize("state", [State.NEW, State.COPYING])
def test_an_idle_source_is_not_fresh_while_a_table_of_it_waits_for_its_rows(world: World, state: State) -> None:
    """Its large table is copied at night: nothing is written, so what is confirmed is where its WAL ends."""
    seen = world.see(table={"state": state}, confirmable_lsn=SLOT.wal_end)
    assert seen.lag_seconds(seen.view.sources[0]) is None
    seen = world.see(confirmable_lsn=SLOT.wal_end)
    assert seen.lag_seconds(seen.view.sources[0]) == 0.0
    world.pass_s(60)
    world.watch.facts = {"shop_eu": dataclasses.replace(SLOT, asked_at=NOW + 57)}
    seen = world.see(table={"state": state}, confirmable_lsn=SLOT.wal_end)
    assert seen.lag_seconds(seen.view.sources[0]) == NOW + 60 - SLOT.asked_at, "a table of the map since a minute"


def test_of_a_source_that_was_never_asked_nothing_is_known(world: World) -> None:
    world.watch.facts = {}
    seen = world.see()
    assert (seen.lag_seconds(seen.view.sources[0]), seen.lag_bytes(seen.view.sources[0])) == (None, None)


def test_silence_counts_from_the_last_bytes_of_any_source(world: World) -> None:
    world.pass_s(100)
    assert world.see(last_message_at=5_050.0).heard_at == 5_050.0
    assert world.see(last_message_at=5_010.0).heard_at == 5_050.0
    assert world.see(last_message_at=None).heard_at == 5_050.0


@pytest.mark.parametrize("facts", [{"phase": "starting"}, {"is_paused": True}])
def test_while_nobody_listens_there_is_no_silence(world: World, facts: dict) -> None:
    world.pass_s(100)
    assert world.see(**facts).heard_at == world.clock


def test_a_standstill_begins_when_something_waits_and_ends_with_a_commit(world: World) -> None:
    world.see(is_pending=True)
    begun = world.clock
    world.pass_s(30)
    assert world.see(is_pending=True).moved_at == begun
    assert world.see(is_pending=True, table={"commits": TABLE.commits + 1}).moved_at == world.clock
    world.pass_s(30)
    assert world.see(is_pending=False, table={"commits": TABLE.commits + 1}).moved_at == world.clock


@pytest.mark.parametrize("facts", [{"table": {"copied_rows": 41}}, {"table": {"copy_done": 5}},
                                   {"confirmable_lsn": 0x501}])  # fmt: skip
def test_a_copy_that_goes_on_and_a_position_that_moves_are_no_standstill(world: World, facts: dict) -> None:
    world.see(is_pending=True)
    world.pass_s(30)
    assert world.see(is_pending=True, **facts).moved_at == world.clock


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.001, 0.5), (0.02, 2.0), (1.0, 5.0)])
def test_it_rests_longer_where_a_look_takes_longer_but_not_for_long(took_s: float, pause_s: float) -> None:
    assert observer._pause_s(took_s) == pause_s


def test_it_looks_by_itself_and_shows_when_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kuvasz.admin.observer._LOOK_S", 0.001)
    looks: list[float] = []
    look = world.observer.look
    world.observer.look = lambda: (looks.append(world.clock), look())[1]  # type: ignore[method-assign]

    async def run() -> int:
        task = asyncio.ensure_future(world.observer.run())
        async with asyncio.timeout(30):
            while len(looks) < 3:  # noqa: ASYNC110 (set in a thread)
                await asyncio.sleep(0.001)
            shown = await world.observer.show(lambda now: now.memory_bytes)
        task.cancel()
        await asyncio.wait([task])
        world.observer.close()
        return shown

    assert asyncio.run(run()) == 77
