"""Which process applies which groups: each by one, whole units together, and no more moves than has to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kuvasz.config import sources
from kuvasz.config.model import Config
from kuvasz.state.shares.memory import MemoryGroups
from kuvasz.state.shares.ports import ApplierNode, HeldGroup, SharedGroups
from kuvasz.sync.group_shares import left_by, other_map, share_of, targets_of, units_of, whole

NODES = ("one", "two", "three")
GROUPS = [f"group-{number}" for number in range(7)]

#: Group -> unit: some stand alone, some go together.
units_ = st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(GROUPS), min_size=1).map(
    lambda found: {group: min(one for one in found if found[one] == unit) for group, unit in found.items()}
)
held_ = st.dictionaries(st.sampled_from(GROUPS), st.sampled_from([*NODES, "gone"]))
drains_ = st.dictionaries(st.sampled_from(NODES), st.booleans(), min_size=1)


def mapped(*groups: tuple[str, dict[str, str]]) -> Any:
    databases = [
        {
            "database": name,
            "urls": [{"url": f"postgresql://{name}/x", "sid": name}],
            "tables": {table: {"target": target} for table, target in tables.items()},
        }
        for name, tables in groups
    ]
    return sources.resolve(Config.model_validate({"databases": databases}))


def test_groups_that_feed_one_target_are_one_unit() -> None:
    found = mapped(
        ("d", {"t": "one"}), ("b", {"t": "one", "u": "two"}), ("c", {"u": "two"}), ("a", {"v": "three"}),
        ("e", {"v": "four", "w": "five"}),
    )  # fmt: skip
    assert units_of(found) == {"a": "a", "b": "b", "c": "b", "d": "b", "e": "e"}
    assert targets_of(found) == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 2}


def test_of_a_unit_all_or_nothing_is_applied() -> None:
    units = {"a": "a", "b": "b", "c": "b"}
    assert whole(units, {"a", "b"}) == {"a"}
    assert whole(units, {"a", "b", "c"}) == {"a", "b", "c"}
    assert whole(units, {"b", "gone"}) == set()


def settled(units: dict[str, str], held: dict[str, str], drains: dict[str, bool]) -> MemoryGroups:
    """Return who holds what once each has done what it finds it has to, one after another."""
    groups = MemoryGroups()
    groups.nodes = {node: ApplierNode(drains=one) for node, one in drains.items()}
    groups._held = {
        group: HeldGroup(node=node, lives=True, map="", targets=1) for group, node in held.items() if group in units
    }
    for _ in range(2 * len(GROUPS)):
        for node in drains:
            groups.node = node
            share = share_of(groups.shared(), units, "")
            groups.release(share.given)
            got = groups.hold(dict.fromkeys(share.taken, 1), "")
            assert set(got) == set(share.taken), "nobody who lives holds it"
    return groups


@given(units_, held_, drains_)
def test_all_are_applied_by_one_each_and_units_stay_together(
    units: dict[str, str], held: dict[str, str], drains: dict[str, bool]
) -> None:
    groups = settled(units, held, drains)
    found = {group: one.node for group, one in groups.shared().held.items()}
    if all(drains.values()):
        return  # better with one that is to give it away than with nobody
    assert found.keys() == units.keys()
    by_unit = {unit: {found[group] for group, other in units.items() if other == unit} for unit in units.values()}
    assert all(len(nodes) == 1 for nodes in by_unit.values())
    takers = [node for node, is_draining in drains.items() if not is_draining]
    counts = [sum(nodes == {node} for nodes in by_unit.values()) for node in takers]
    assert sum(counts) == len(by_unit)
    assert max(counts) - min(counts) <= 1
    for node in drains:
        groups.node = node
        assert share_of(groups.shared(), units, "") == ([], []), "nothing moves while nothing changes"


def shared(*held: tuple[str, str, bool, str], **maps: str) -> SharedGroups:
    return SharedGroups(
        node="one", nodes={node: ApplierNode(map=digest) for node, digest in maps.items()},
        held={group: HeldGroup(node=node, lives=lives, map=digest, targets=1) for group, node, lives, digest in held},
    )  # fmt: skip


def test_who_holds_something_by_another_map_is_named() -> None:
    units = {"a": "a", "b": "b"}
    beside = shared(("a", "two", True, "old"), one="new", two="old")
    assert other_map(beside, "new") == "two"
    assert other_map(beside, "old") is None
    # One that has another map, and nothing, has no share.
    assert other_map(shared(one="new", two="old"), "new") is None
    assert share_of(shared(one="new", two="old"), units, "new").taken == ["a", "b"]


def test_what_a_dead_one_held_by_another_map_waits_for_one_with_that() -> None:
    units = {"a": "a", "b": "b"}
    left = shared(("a", "gone", False, "old"), one="new")
    assert share_of(left, units, "new").taken == ["b"]
    assert left_by(left, "new") == "gone"
    assert share_of(left, units, "old").taken == ["a", "b"]
    assert left_by(left, "old") is None


def test_what_a_process_held_itself_before_it_was_killed_it_takes_by_its_map_of_now() -> None:
    """Else one that is alone would apply nothing until it has its old map back."""
    units = {"a": "a", "b": "b"}
    left = shared(("a", "one", False, "old"), one="new")
    assert share_of(left, units, "new").taken == ["a", "b"]
    assert left_by(left, "new") is None
