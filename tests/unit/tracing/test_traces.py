"""What a trace has: the steps one behind the other, the names, and no trace before it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typing_extensions import override

from kuvasz import lsn
from kuvasz.events import Event
from kuvasz.tracing import traces
from kuvasz.tracing.mini_transaction import MiniTransaction, Times
from kuvasz.tracing.traces import Traces

pytest.importorskip("opentelemetry.sdk", reason="without the extra kuvasz[tracing]")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class World:
    """Traces, and where they go."""

    def __init__(self) -> None:
        self.sent = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.sent))
        self.traces = Traces(provider.get_tracer("test"))

    def durable(self, number: int = 0, **through: int) -> None:
        self.take(through, number)

    def take(self, through: Mapping[str, int], number: int = 0) -> None:
        now = time.monotonic()
        times = Times(now - 1.0, now - 0.75, now - 0.5, now - 0.375, now - 0.25)
        self.traces.durable(
            MiniTransaction(
                worker=number, times=times, bytes=100, rows=3, through=through,
                snapshots={"shop.items": 7, "shop.same": None}, failed=("shop.bad",) if number else (),
            )
        )  # fmt: skip

    def confirm(self, source: str, to: int) -> None:
        self.traces.hear(Event.STREAM_CONFIRMED, {"source": source, "lsn": lsn.render(to)})

    def names(self) -> list[str]:
        return [span.name for span in self.sent.get_finished_spans()]


@pytest.fixture
def world() -> World:
    return World()


STEPS = ["wait", "write", "wait for commit", "commit", "confirm", "mini-transaction"]


def test_a_trace_is_made_when_all_of_its_sources_were_told(world: World) -> None:
    world.durable(eu=0x100, us=0x200)
    world.traces.hear(Event.COPIED, {"source": "eu"})
    world.confirm("eu", 0x100)
    world.confirm("us", 0x1FF)
    assert world.names() == []
    world.confirm("us", 0x200)
    assert world.names() == STEPS
    spans: dict[str, Any] = {span.name: span for span in world.sent.get_finished_spans()}
    root = spans.pop("mini-transaction")
    assert {span.parent.span_id for span in spans.values()} == {root.context.span_id}
    assert {span.context.trace_id for span in spans.values()} == {root.context.trace_id}
    begins, ends = [spans[name].start_time for name in STEPS[:5]], [spans[name].end_time for name in STEPS[:5]]
    assert [root.start_time, *ends] == [*begins, root.end_time], "one behind the other, from the first to the last"
    assert begins[2] - begins[0] == pytest.approx(0.5e9, abs=1e4)
    assert abs(root.end_time - time.time_ns()) < 60e9
    assert dict(root.attributes) == {
        "kuvasz.worker": 0, "kuvasz.rows": 3, "kuvasz.bytes": 100, "kuvasz.targets": ("shop.items", "shop.same"),
        "kuvasz.sources": ("eu", "us"), "kuvasz.lsns": ("eu=0/100", "us=0/200"),
        "kuvasz.snapshots": ("shop.items=7",),
    }  # fmt: skip


def test_what_was_told_before_it_was_known_to_be_durable_is_over_at_once(world: World) -> None:
    world.confirm("eu", 0x100)
    world.durable(eu=0x100)
    assert world.names() == STEPS


def test_one_that_is_never_confirmed_is_told_without_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_WAITING", 2)
    for number in range(3):
        world.durable(number, eu=0x100)
    assert world.names() == [name for name in STEPS if name != "confirm"], "the oldest makes room"
    world.traces.end()
    assert world.names().count("mini-transaction") == 3
    assert "confirm" not in world.names()
    world.traces.end()
    assert world.names().count("mini-transaction") == 3


def test_a_target_that_failed_is_named_without_what_was_wrong(world: World) -> None:
    world.durable(1, eu=0x100)
    world.traces.end()
    root = world.sent.get_finished_spans()[-1]
    assert root.attributes is not None
    assert (root.status.is_ok, root.status.description) == (False, None)
    assert root.attributes["kuvasz.failed"] == ("shop.bad",)


def test_of_many_names_the_first_are_told(world: World) -> None:
    world.durable(**{f"s{number:04d}": 1 for number in range(traces.MOST_NAMES + 1)})
    world.traces.end()
    attributes = world.sent.get_finished_spans()[-1].attributes or {}
    assert len(attributes["kuvasz.sources"]) == traces.MOST_NAMES  # type: ignore[arg-type]


class LookedAt(Mapping[str, int]):
    """How far the sources of a mini-transaction go, and how often somebody looked at all of them."""

    def __init__(self, **through: int) -> None:
        self._through = through
        self.times = 0

    @override
    def __getitem__(self, source: str) -> int:
        return self._through[source]

    @override
    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return iter(self._through)

    @override
    def __len__(self) -> int:
        return len(self._through)


def test_a_source_that_is_never_told_costs_the_confirmations_of_others_nothing(world: World) -> None:
    stuck = LookedAt(late=0x100)
    world.take(stuck)
    world.durable(late=0x200, eu=0x100)
    for number in range(100):
        world.confirm("eu", 0x100 + number)
    assert (stuck.times, world.names()) == (1, [])
    world.confirm("late", 0x200)
    assert world.names() == [*STEPS, *STEPS]


def test_the_oldest_that_wait_are_made_first_whatever_they_wait_for(world: World) -> None:
    world.durable(number=1, late=0x100)
    for number in range(traces.MOST_WAITING):
        world.durable(number=2, **{("eu", "us")[number % 2]: 0x100})
    assert world.names() == STEPS[:-2] + STEPS[-1:]
    world.traces.end()
    assert len(world.names()) == 5 * (traces.MOST_WAITING + 1)
