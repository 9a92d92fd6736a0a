from __future__ import annotations

from kuvasz.worker.under_way import UnderWay

T, OTHER = "shop.items", "shop.others"


def test_what_has_begun_ends_in_order() -> None:
    under_way = UnderWay()
    assert under_way.has_ended(under_way.begun, T)
    under_way.begin()
    first = under_way.begun
    under_way.begin()
    assert (first, under_way.begun) == (1, 2)
    assert not under_way.has_ended(first, T)
    under_way.end()
    assert under_way.has_ended(first, T)
    assert not under_way.has_ended(under_way.begun, T)


def test_a_target_that_stepped_aside_is_under_way_until_it_came_through() -> None:
    under_way = UnderWay()
    under_way.begin()
    number = under_way.step_aside(T)
    under_way.end()
    assert under_way.has_ended(1, OTHER)
    assert not under_way.has_ended(1, T)
    assert under_way.has_ended(0, T), "what began before it has ended"
    under_way.came_through(T, number)
    assert under_way.has_ended(1, T)


def test_each_mini_transaction_that_stepped_aside_counts() -> None:
    under_way = UnderWay()
    numbers = []
    for _ in range(2):
        under_way.begin()
        numbers.append(under_way.step_aside(T))
        under_way.end()
    under_way.came_through(T, numbers[1])
    assert not under_way.has_ended(1, T)
    under_way.came_through(T, numbers[0])
    assert under_way.has_ended(2, T)
