from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SlotLost, SourceError
from kuvasz.sync.context import alignment
from kuvasz.sync.context.alignment import Alignment

PLACE = "source shop_eu, table shop.items"


class World:
    """A slot, and a clock that each look moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.confirmed: int | None = 50
        self.reader: int | None = 4711
        self.why_lost = ""
        self.is_there = True
        self.waits = 0
        source: Any = SimpleNamespace(object_name="kuvasz_shop_eu")
        self.alignment = Alignment(source)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(alignment, "time", clock)
        monkeypatch.setattr(alignment.slots, "describe", lambda *_: self if self.is_there else None)

    @property
    def confirmed_flush_lsn(self) -> int | None:
        return self.confirmed

    @property
    def active_pid(self) -> int | None:
        return self.reader

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.wait()

    def wait(self) -> None:
        """What happens between two looks."""

    def aligned(self, point: int) -> int:
        return self.alignment.wait(None, point, PLACE, self.count)

    def count(self) -> None:
        self.waits += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_point_that_was_passed_is_not_waited_for(world: World) -> None:
    assert world.aligned(50) == 50
    assert (world.waits, world.now) == (0, 100.0)


def test_a_reader_is_waited_for_as_long_as_it_gets_on(world: World) -> None:
    def wait() -> None:
        assert world.confirmed is not None
        world.confirmed += int(world.now % 20 < 0.2)  # now and then

    world.wait = wait  # type: ignore[method-assign]
    assert world.aligned(55) == 55
    assert world.now > 100 + alignment._STUCK_S, "longer than one that is stuck is"
    assert world.waits > 0


def test_a_slot_that_nobody_reads_stays_where_it_is(world: World) -> None:
    world.reader = None
    assert world.aligned(99) == 50
    assert world.now == pytest.approx(100 + alignment._STOPPED_S, abs=0.3)


def test_that_nobody_reads_is_found_out_once(world: World) -> None:
    world.reader = None
    world.aligned(99)
    before = world.now
    assert world.aligned(99) == 50
    assert world.now == before, "for the next table of the source it is known"
    world.reader = 4712

    def wait() -> None:
        world.reader = None
        world.confirmed = 99 if world.now > before + 2 else 50

    world.wait = wait  # type: ignore[method-assign]
    assert world.aligned(99) == 99, "one that came back is waited for, as any"


def test_a_reader_that_reconnects_is_waited_for(world: World) -> None:
    def wait() -> None:
        world.reader = None if world.now < 102 else 4712
        world.confirmed = 99 if world.now > 104 else 50

    world.wait = wait  # type: ignore[method-assign]
    assert world.aligned(99) == 99


def test_a_source_that_is_stuck_is_waited_for_once(world: World) -> None:
    told = (
        f"{PLACE}: kuvasz has confirmed 0/32 and got no further in 30 s; needed is 0/63\nhint: `kuvasz status` says"
        " which table holds it: mend that, or stop kuvasz and verify then"
    )
    for expected_s in (30, 0):
        before = world.now
        with pytest.raises(SourceError) as caught:
            world.aligned(0x63)
        assert str(caught.value) == told
        assert world.now - before == pytest.approx(expected_s, abs=0.3)
    world.confirmed = 51
    with pytest.raises(SourceError, match="has confirmed 0/33"):
        world.aligned(0x63)
    assert world.now > 155, "it had got on"


@pytest.mark.parametrize("facts", [{"is_there": False}, {"confirmed": None}, {"why_lost": "it was invalidated"}])
def test_without_a_slot_nobody_knows_how_far_the_lake_is(world: World, facts: dict[str, Any]) -> None:
    vars(world).update(facts)
    with pytest.raises(SlotLost) as caught:
        world.aligned(10)
    assert str(caught.value) == (
        f"{PLACE}: slot kuvasz_shop_eu is gone: how far the lake is cannot be told\nhint: start kuvasz: it says what"
        " to do"
    )
