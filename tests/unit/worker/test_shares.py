from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kuvasz.model import Delivery
from kuvasz.worker.shares import portion

WAITING = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 200)), max_size=40)


def made(sizes: list[tuple[str, int]]) -> list[Delivery]:
    """Deliveries; their LSN is their place in the queue."""
    return [
        Delivery(source=source, changes=(), through=place, bytes=size) for place, (source, size) in enumerate(sizes)
    ]


def size_of(deliveries: list[Delivery]) -> int:
    return sum(one.bytes for one in deliveries)


def test_one_source_has_all_of_it() -> None:
    waiting = made([("a", 60), ("a", 60), ("a", 60), ("a", 10)])
    assert portion(waiting, 100) == (waiting[:2], waiting[2:])


def test_a_small_one_behind_a_flood_is_in_the_next() -> None:
    waiting = made([("flood", 30)] * 50 + [("quiet", 5), ("quiet", 5)])
    taken, left = portion(waiting, 100)
    assert [one.through for one in taken if one.source == "quiet"] == [50, 51]
    assert 90 <= size_of(taken) - 10 < 130
    assert all(one.source == "flood" for one in left)


def test_floods_have_equal_shares() -> None:
    taken, _ = portion(made([("a", 10)] * 100 + [("b", 10)] * 100), 100)
    assert [sum(one.source == source for one in taken) for source in "ab"] == [5, 5]


def test_two_hundred_quiet_ones_are_all_in_the_next() -> None:
    waiting = made([("flood", 1000)] * 300 + [(f"quiet{n}", 10) for n in range(200)])
    taken, _ = portion(waiting, 20_000)
    assert len({one.source for one in taken}) == 201
    assert 20_000 <= size_of(taken) < 21_000


@given(WAITING, st.integers(1, 500))
def test_what_is_taken(sizes: list[tuple[str, int]], most: int) -> None:
    waiting = made(sizes)
    taken, left = portion(waiting, most)
    assert sorted([*taken, *left], key=lambda one: one.through) == waiting, "none is lost or doubled"
    assert [one.through for one in taken] == sorted(one.through for one in taken)
    assert [one.through for one in left] == sorted(one.through for one in left)
    assert taken[:1] == waiting[:1], "the oldest is taken: none starves"
    assert not left or size_of(taken) >= most, "nothing stays that there was room for"
    assert size_of(taken) <= most + 2 * max((size for _, size in sizes), default=0)
    for source in "abcd":
        mine, rest = ([one.through for one in part if one.source == source] for part in (taken, left))
        assert not mine or not rest or mine[-1] < rest[0], "the order of a source stays"


@given(WAITING, st.integers(1, 500))
def test_all_of_it_is_taken_in_the_end(sizes: list[tuple[str, int]], most: int) -> None:
    waiting, found = made(sizes), []
    while waiting:
        taken, waiting = portion(waiting, most)
        assert taken
        found += taken
    assert sorted(one.through for one in found) == list(range(len(sizes)))


@given(WAITING, st.integers(1, 500))
@example([("a", 1), ("a", 0)], 1)  # the end of a transaction has no bytes of its own
def test_who_has_less_than_an_equal_share_waits_for_nobody(sizes: list[tuple[str, int]], most: int) -> None:
    waiting = made(sizes)
    _, left = portion(waiting, most)
    of = {source: size_of([one for one in waiting if one.source == source]) for source in "abcd"}
    active = [source for source in of if any(one.source == source for one in waiting)]
    for source in active:
        if of[source] <= most // len(active):
            assert not any(one.source == source for one in left), source
