"""Parts are gathered side by side; none keeps another one waiting, or from coming."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kuvasz.errors import LakeError
from kuvasz.verbs.support.part import Part, PartFiles, in_time, outcomes, why


def part(gather: Callable[[], PartFiles], limit_s: float = 30.0) -> Part:
    return Part(name="one", what="something", limit_s=limit_s, gather=gather)


def test_a_part_that_fails_or_hangs_leaves_the_others_alone() -> None:
    gone = threading.Event()

    def hang() -> PartFiles:
        gone.wait(30)
        return PartFiles()

    def fail() -> PartFiles:
        raise LakeError("no catalog", hint="mend it")

    good = PartFiles(files={"a": "b"})
    begin = time.monotonic()
    late, failed, there = outcomes([part(hang, 0.1), part(fail), part(lambda: good)])
    gone.set()
    assert time.monotonic() - begin < 10
    assert (late.why_not, late.is_under_way) == ("it was not there within 0.1 s", True)
    assert (failed.why_not, failed.is_under_way) == ("no catalog", False)
    assert (there.why_not, there.gathered) == ("", good)


def test_many_are_asked_side_by_side_and_those_that_are_late_are_named() -> None:
    gone = threading.Event()

    def work(item: int) -> int:
        if item == 2:
            gone.wait(30)
        return item * 10

    assert in_time([1, 3], work, 30) == ({1: 10, 3: 30}, [])
    assert in_time([], work, 30) == ({}, [])
    found, late = in_time([1, 2, 3], work, 0.5)
    gone.set()
    assert (found, late) == ({1: 10, 3: 30}, [2])


def test_of_an_error_that_is_not_ours_the_text_is_not_told() -> None:
    try:
        raise ValueError("a value of a row")
    except ValueError as error:
        told = why(error)
    assert "a value" not in told
    assert told.startswith("ValueError at ")
    assert "test_part.py" in told
    assert why(FileNotFoundError(2, "No such file or directory", "x")) == "no such file or directory"
