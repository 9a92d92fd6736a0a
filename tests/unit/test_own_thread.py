from __future__ import annotations

import concurrent.futures
import threading

import pytest

from kuvasz.own_thread import THREAD_NAME, carry_out, in_thread


def test_each_call_has_a_thread_of_its_own_that_no_end_waits_for() -> None:
    found = [in_thread(threading.current_thread) for _ in range(2)] + [in_thread(threading.current_thread, "names")]
    threads = [one.result(30) for one in found]
    assert [one.name for one in threads] == [THREAD_NAME, THREAD_NAME, "names"]
    assert all(one.daemon for one in threads)
    assert threads[0] is not threads[1]


def test_what_it_raises_is_the_callers() -> None:
    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        in_thread(fail).result(30)


def test_what_was_cancelled_before_is_not_begun() -> None:
    job: concurrent.futures.Future[None] = concurrent.futures.Future()
    job.cancel()
    carry_out(job, lambda: pytest.fail("it was cancelled"))
    assert job.cancelled()
