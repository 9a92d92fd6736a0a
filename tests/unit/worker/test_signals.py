from __future__ import annotations

import threading
import time

from kuvasz.worker.signals import Signals


def test_a_sleep_ends_when_the_worker_stops() -> None:
    signals, begin = Signals(), time.monotonic()
    threading.Timer(0.05, signals.stop).start()
    signals.sleep(60)
    assert signals.is_stopping
    assert time.monotonic() - begin < 30
    signals.sleep(60)
    assert time.monotonic() - begin < 30


def test_a_sleep_does_not_end_for_any_other_change() -> None:
    signals, begin = Signals(), time.monotonic()
    threading.Timer(0.01, signals.tell).start()
    signals.sleep(0.1)
    assert time.monotonic() - begin >= 0.09
    assert not signals.is_stopping
