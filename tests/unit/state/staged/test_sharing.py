"""Which process is to hold which source: all are held, by one each, and no more moves than has to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kuvasz.state.staged.sharing import share_of, shared_out

NAMES = [f"node-{number}" for number in range(6)]

nodes_ = st.dictionaries(st.sampled_from(NAMES), st.just(False), min_size=1)
#: Also by those that are gone.
holders_ = st.dictionaries(
    st.integers(0, 60).map(lambda number: f"shop_{number}"),
    st.none() | st.sampled_from([*NAMES, "gone"]),
    max_size=30,
)


def counts(nodes: Mapping[str, bool], holders: Mapping[str, str | None]) -> Counter[str]:
    return Counter({node: sum(holder == node for holder in holders.values()) for node in nodes})


def moved(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> set[str]:
    return {source for source in before if before[source] != after[source]}


def settled(nodes: Mapping[str, bool], holders: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return who holds what once each has done what it finds it has to, one after another."""
    found = dict(holders)
    for _ in range(2 * len(NAMES)):
        for node in nodes:
            share = share_of(node, nodes, found)
            assert all(found[source] not in nodes for source in share.taken), "nobody who lives holds it"
            assert all(found[source] == node for source in share.given)
            found |= dict.fromkeys(share.given) | dict.fromkeys(share.taken, node)
    return found


@given(nodes_, holders_)
def test_all_are_held_and_nobody_holds_much_more_than_another(
    nodes: dict[str, bool], holders: dict[str, str | None]
) -> None:
    plan = shared_out(nodes, holders)
    assert plan.keys() == holders.keys()
    assert set(plan.values()) <= nodes.keys()
    found = counts(nodes, plan).values()
    assert max(found) - min(found) <= 1


@given(nodes_, holders_)
def test_no_more_moves_than_has_to(nodes: dict[str, bool], holders: dict[str, str | None]) -> None:
    plan = shared_out(nodes, holders)
    free = {source for source, holder in holders.items() if holder not in nodes}
    before = sorted(counts(nodes, holders).values(), reverse=True)
    least, over = divmod(len(holders), len(nodes))
    too_many = sum(max(0, count - least - (at < over)) for at, count in enumerate(before))
    assert len(moved(holders, plan) - free) == too_many
    assert shared_out(nodes, plan) == plan, "nothing moves while nothing changes"


@given(nodes_, holders_, st.sampled_from(NAMES))
def test_who_comes_gets_a_share_and_nothing_else_moves(
    nodes: dict[str, bool], holders: dict[str, str | None], node: str
) -> None:
    nodes.pop(node, None)
    if nodes:
        before = shared_out(nodes, holders)
        after = shared_out({**nodes, node: False}, before)
        assert {after[source] for source in moved(before, after)} <= {node}


@given(nodes_, holders_)
def test_of_who_goes_the_share_is_taken_over_and_nothing_else_moves(
    nodes: dict[str, bool], holders: dict[str, str | None]
) -> None:
    before = shared_out(nodes, holders)
    gone, *others = nodes
    if others:
        after = shared_out(dict.fromkeys(others, False), before)
        assert moved(before, after) == {source for source, holder in before.items() if holder == gone}


@given(nodes_, holders_)
def test_who_is_drained_keeps_nothing_if_anybody_else_may_take_it(
    nodes: dict[str, bool], holders: dict[str, str | None]
) -> None:
    before = shared_out(nodes, holders)
    drained, *others = nodes
    after = shared_out({**nodes, drained: True}, before)
    mine = {source for source, holder in before.items() if holder == drained}
    assert moved(before, after) == (mine if others else set())
    assert share_of(drained, {**nodes, drained: True}, before).taken == []


@given(nodes_, holders_)
def test_each_does_its_part_and_all_is_as_it_should_be(
    nodes: dict[str, bool], holders: dict[str, str | None]
) -> None:
    after = settled(nodes, holders)
    found = counts(nodes, after).values()
    assert set(after.values()) <= nodes.keys()
    assert max(found) - min(found) <= 1
    assert len(moved(holders, after)) == len(moved(holders, shared_out(nodes, holders)))


def test_nobody_who_may_take_is_nobody_who_holds() -> None:
    assert shared_out({}, {"eu": None, "us": "gone"}) == {"eu": None, "us": None}
    assert shared_out({"one": True}, {"eu": None, "us": "one"}) == {"eu": None, "us": "one"}
    share = share_of("late", {"one": False}, {"eu": "late"})
    assert share.taken == [], "who is late itself takes nothing"
