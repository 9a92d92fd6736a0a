from __future__ import annotations

import pytest

from kuvasz.parking.replay_offsets import ReplayOffsets

T, S = "shop.items", "shop_eu"


def test_only_the_last_replay_counts() -> None:
    replays = ReplayOffsets()
    replays.reset(T, S)
    first, offset = replays.begin(T, S)
    assert offset == 0
    assert replays.is_on(T, S, first)
    replays.applied(T, S, first, 500)
    second, offset = replays.begin(T, S)
    assert offset == replays.offset(T, S) == 500
    assert not replays.is_on(T, S, first)
    replays.applied(T, S, first, 900)
    assert replays.offset(T, S) == 500
    replays.applied(T, S, second, 400)
    assert replays.offset(T, S) == 500, "it never goes back"


def test_nothing_is_replayed_of_a_log_that_is_gone() -> None:
    replays = ReplayOffsets()
    replays.reset(T, S)
    number, _ = replays.begin(T, S)
    replays.forget(T, S)
    replays.forget(T, S)
    assert not replays.is_on(T, S, number)
    replays.applied(T, S, number, 900)
    with pytest.raises(KeyError):
        replays.begin(T, S)
    replays.reset(T, S)
    assert replays.offset(T, S) == 0
    assert replays.begin(T, S)[0] != number, "a number is never used twice"
