"""How far the lake is with what is staged: waited for while a process applies, and else nothing is compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.sync.context import alignment
from kuvasz.verify.staged_alignment import StagedAlignment

PLACE = "source shop_eu, table shop.items"


class World:
    """A log whose first lake is at LSN 50, and a clock that each look moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.index = MemoryIndex()
        self.is_applied = True
        self.index.begin_anew("shop_eu", 50)
        source: Any = SimpleNamespace(name="shop_eu", object_name="kuvasz_shop_eu")
        self.alignment = StagedAlignment(source, self.index)
        monkeypatch.setattr(self.index, "is_applied", lambda: self.is_applied)
        monkeypatch.setattr(alignment, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.wait()

    def wait(self) -> None:
        """What happens between two looks."""

    def aligned(self, point: int) -> int:
        return self.alignment.wait(None, point, PLACE, lambda: None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_is_staged_is_waited_for_until_it_is_applied(world: World) -> None:
    def wait() -> None:
        if world.now > 104:
            world.index.applied({"shop_eu": 70})

    world.wait = wait  # type: ignore[method-assign]
    assert world.aligned(50) == 50
    assert world.aligned(60) == 70
    assert world.now > 104


def test_a_group_goes_by_its_own_lake(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    blue = world.index.of_group("blue")
    blue.open()
    blue.begin_anew("shop_eu", 0)
    world.index.applied({"shop_eu": 70})
    monkeypatch.setattr(world.alignment, "_index", blue)
    monkeypatch.setattr(alignment, "_STUCK_S", 1.0)
    assert world.aligned(50) == 50
    with pytest.raises(SourceError, match="what is staged up to 0/32 and got no further"):
        world.aligned(60)
    world.index.release(["shop_eu"])
    world.index.withdraw("shop_eu")  # it is of another past: what the group said counts no more
    with pytest.raises(SourceError, match="up to 0/0"):
        world.aligned(40)
    blue.rejoin("shop_eu")
    assert world.aligned(40) == 50


def test_what_nobody_applies_is_not_compared(world: World) -> None:
    world.is_applied = False
    for waited_s in (alignment._STOPPED_S, 0):
        before = world.now
        with pytest.raises(SourceError, match="no process applies what is staged") as caught:
            world.aligned(60)
        assert world.now - before == pytest.approx(waited_s, abs=0.3)
    assert str(caught.value.hint) == "start kuvasz, and verify beside it"
    assert world.aligned(50) == 50, "what is there all the same"


def test_one_that_is_started_again_is_waited_for(world: World) -> None:
    def wait() -> None:
        world.is_applied = world.now > 102
        if world.now > 105:
            world.index.applied({"shop_eu": 60})

    world.wait = wait  # type: ignore[method-assign]
    assert world.aligned(60) == 60
