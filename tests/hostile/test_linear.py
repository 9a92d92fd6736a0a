"""What is told of many sources takes work in proportion: bytecodes are counted, for time is the machine's."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kuvasz.admin import views
from kuvasz.admin.metrics import Metrics
from kuvasz.admin.observer import Snapshot
from kuvasz.parking.logs import ParkedView
from kuvasz.view import View
from tests.support.snapshots import FACTS, NOW, SOURCE, TABLE, snapshot

TABLES = 3


def of(sources: int) -> Snapshot:
    """A moment of that many sources; every third waits and every fifth has something parked."""
    names = [f"shop_{number}" for number in range(sources)]
    found = [
        dataclasses.replace(SOURCE, name=name, state="streaming" if number % 3 else "waiting",
                            error=None if number % 3 else "it is silent")
        for number, name in enumerate(names)
    ]  # fmt: skip
    tables = [
        dataclasses.replace(TABLE, source=name, target=f"shop.t{number}", table=f"public.t{number}")
        for name in names
        for number in range(TABLES)
    ]
    parked = ParkedView(bytes=700, since=NOW - 60, first_lsn=0x400, is_full=True)
    view = View(
        phase="running", sources=tuple(found), tables=tuple(tables), waiting_bytes=10, commit_conflicts=0,
        parked={("shop.t0", name): parked for name in names[::5]},
    )  # fmt: skip
    return dataclasses.replace(snapshot(), view=view, facts=dict.fromkeys(names, FACTS))


def work(function: Callable[[Snapshot], object], moment: Snapshot) -> int:
    """How many bytecodes it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(moment)
    finally:
        sys.settrace(before)
    return count


@pytest.fixture
def ways() -> dict[str, Callable[[Snapshot], object]]:
    """What is made of a moment for those who ask."""
    return {"status": views.status, "livez": views.livez, "readyz": views.readyz, "metrics": Metrics().render}


@pytest.mark.parametrize("way", ["status", "livez", "readyz", "metrics"])
def test_work_grows_as_the_number_of_sources(ways: dict[str, Callable[[Snapshot], object]], way: str) -> None:
    """Four times as many sources make three times the work more, as twice as many make it once."""
    function = ways[way]
    function(of(80))  # what is made once
    ten, twenty, forty = (work(function, of(number)) for number in (20, 40, 80))
    assert forty - twenty <= 2.1 * (twenty - ten) + 200, (ten, twenty, forty)


def test_work_that_grows_faster_is_seen() -> None:
    """What `/status` did once: it looked through all tables for each source."""

    def quadratic(moment: Snapshot) -> list[int]:
        view = moment.view
        return [sum(table.source == source.name for table in view.tables) for source in view.sources]

    ten, twenty, forty = (work(quadratic, of(number)) for number in (20, 40, 80))
    assert forty - twenty > 3 * (twenty - ten), (ten, twenty, forty)
