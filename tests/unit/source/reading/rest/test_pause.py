from __future__ import annotations

import pytest

from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.rest import pause as pause_module
from kuvasz.source.reading.rest.pause import Pause

OPTIONS = ReaderOptions(longest_pause_s=0.02, look_bytes=1 << 20, local_look_bytes=32 << 10)


@pytest.mark.parametrize(("is_local", "aim_bytes"), [(False, 1 << 20), (True, 32 << 10)])
def test_pauses_adapt_until_a_look_finds_what_it_should(is_local: bool, aim_bytes: int) -> None:
    pause = Pause(OPTIONS, is_local=is_local)
    first = pause.after(aim_bytes)
    assert first == pause.after(aim_bytes) == 0.001
    assert pause.after(aim_bytes // 8) == 0.002, "twice at most"
    assert pause.after(aim_bytes * 100) == 0.0005, "a quarter at least"


def test_a_pause_has_a_longest_and_a_shortest_is_none() -> None:
    pause = Pause(OPTIONS, is_local=False)
    for _ in range(20):
        longest = pause.after(OPTIONS.quiet_bytes)
    assert longest == 0.02
    for _ in range(20):
        shortest = pause.after(1 << 30)
    assert shortest == 0.0


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = 1000.1

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pause_module, "time", clock)
    return clock


def test_one_source_never_rests() -> None:
    pause = Pause(OPTIONS.among(1, 1 << 30), is_local=False)
    assert [pause.after(found) for found in (100, 0, 100, 0)] == [0.0, None, 0.0, None]


def looks(pause: Pause, clock: Clock, found: list[int], apart_s: float = 0.1) -> list[float | None]:
    """Return the pauses behind looks that find so many bytes."""
    pauses = []
    for one in found:
        clock.now += apart_s
        pauses.append(pause.after(one))
    return pauses


def test_sources_that_bring_little_look_at_the_same_moments(clock: Clock) -> None:
    options = OPTIONS.among(100, 1 << 30)
    moments = set()
    for late_s in (0.0, 0.05, 0.1):
        pause = Pause(options, is_local=False)
        clock.now = 1000.13
        pause.after(100)
        clock.now = 1000.13 + late_s
        pause_s = pause.after(100)
        assert pause_s is not None
        assert options.rest_s / 2 <= pause_s <= options.rest_s * 1.5
        moments.add(round(clock.now + pause_s, 6))
    assert len(moments) == 1


def test_a_source_that_is_quiet_is_looked_at_no_more(clock: Clock) -> None:
    pause = Pause(OPTIONS.among(100, 1 << 30), is_local=False)
    pause.after(100)
    rests = looks(pause, clock, [100, 0, 0, 0, 0, 0])
    assert [rest_s is None for rest_s in rests] == [False, False, False, False, True, True]


def test_what_comes_alone_is_followed_by_no_looks(clock: Clock) -> None:
    pause = Pause(OPTIONS.among(100, 1 << 30), is_local=False)
    for _ in range(3):  # keepalives of a source at rest
        clock.now += 10.0
        assert [pause.after(found) for found in (18, 0)] == [0.0, None]


def test_a_source_that_brings_a_little_now_and_then_rests(clock: Clock) -> None:
    options = OPTIONS.among(100, 1 << 30)
    pause = Pause(options, is_local=False)
    assert looks(pause, clock, [100, 0], options.rest_s) == [0.0, None]
    assert None not in looks(pause, clock, [0, 100, 0, 0, 100, 0, 0, 0, 100], options.rest_s)[1:]


def test_a_flood_is_read_on_without_a_rest(clock: Clock) -> None:
    pause = Pause(OPTIONS.among(100, 1 << 30), is_local=False)
    pause.after(1 << 20)
    assert [pause.after(found) for found in (100, 0)] == [0.0, None]
    clock.now += 2.0
    assert looks(pause, clock, [100, 100])[1] not in {0.0, None}
