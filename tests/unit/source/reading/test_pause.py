from __future__ import annotations

import pytest

from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.pause import Pause

OPTIONS = ReaderOptions(longest_pause_s=0.02, look_bytes=1 << 20, local_look_bytes=32 << 10)


@pytest.mark.parametrize(("is_local", "aim_bytes"), [(False, 1 << 20), (True, 32 << 10)])
def test_pauses_adapt_until_a_look_finds_what_it_should(is_local: bool, aim_bytes: int) -> None:
    pause = Pause(OPTIONS, is_local=is_local)
    first = pause.after(aim_bytes)
    assert first == pause.after(aim_bytes) == 0.001
    assert pause.after(aim_bytes // 100) == 0.002, "twice at most"
    assert pause.after(aim_bytes * 100) == 0.0005, "a quarter at least"


def test_a_pause_has_a_longest_and_a_shortest_is_none() -> None:
    pause = Pause(OPTIONS, is_local=False)
    for _ in range(20):
        longest = pause.after(1)
    assert longest == 0.02
    for _ in range(20):
        shortest = pause.after(1 << 30)
    assert shortest == 0.0
