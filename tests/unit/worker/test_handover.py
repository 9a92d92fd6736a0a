from __future__ import annotations

import threading
from typing import Any

from kuvasz.worker.gather import Gathered
from kuvasz.worker.handover import Handover

ITEM: Any = (Gathered(works=(), through={}, bytes_of={}), "written")


def test_one_waits_and_the_next_has_to() -> None:
    handover = Handover()
    assert handover.is_empty
    handover.put(ITEM)
    assert not handover.is_empty
    second = threading.Thread(target=handover.put, args=(None,))
    second.start()
    second.join(0.05)
    assert second.is_alive()
    assert handover.get() is ITEM
    second.join(10)
    assert handover.get() is None
    assert handover.is_empty


def test_a_thread_that_waits_for_one_that_died_goes_on() -> None:
    handover = Handover()
    handover.free_committer()
    handover.free_committer()
    assert handover.get() is None
    handover.put(ITEM)
    writer = threading.Thread(target=handover.put, args=(ITEM,))
    writer.start()
    while writer.is_alive():
        handover.free_writer()
    writer.join(10)
