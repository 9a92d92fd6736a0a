"""What every record of who applies which group owes: see `kuvasz.state.shares.ports`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.ports import ServerAddress
from kuvasz.state.shares.memory import MemoryGroups
from kuvasz.state.shares.ports import ApplierNode, GroupHolders
from tests.support.postgres import Database
from tests.support.waiting import wait_until


class World:
    """A record, and processes that ask."""

    def begin(self, name: str) -> None:
        """Have a process apply from now on."""
        raise NotImplementedError

    def ask(self, name: str) -> GroupHolders:
        """Return the record as a process sees it."""
        raise NotImplementedError

    def sleep(self, name: str) -> None:
        """Have a process not be heard of for a lease."""
        raise NotImplementedError

    def drain(self, name: str) -> None:
        """Have a process give away what it holds."""
        raise NotImplementedError

    def node(self, name: str) -> str:
        """Return what a process is called."""
        return name


class InMemory(World):
    def __init__(self) -> None:
        self.groups = MemoryGroups()
        self.groups.nodes.clear()

    def begin(self, name: str) -> None:
        self.groups.nodes[name] = ApplierNode(map="map")
        self.groups.ended.discard(name)

    def ask(self, name: str) -> GroupHolders:
        self.groups.node = name
        return self.groups

    def sleep(self, name: str) -> None:
        del self.groups.nodes[name]

    def drain(self, name: str) -> None:
        self.groups.nodes[name] = ApplierNode(map="map", drains=True)


class Coordinated(World):
    def __init__(self, database: Database, folder: Path, exits: contextlib.ExitStack) -> None:
        self._database, self._folder, self._exits = database, folder, exits
        self.stores: dict[str, CoordinatorStore] = {}

    def begin(self, name: str) -> None:
        store = CoordinatorStore(lambda: self._database.url, "tests", self._folder / name, 30.0)
        member = store.member("tests", lambda _: None, ClusterRole.APPLY)
        member.join()
        self._exits.callback(member.leave)
        assert member.take("applies", "map") is None
        self.stores[name] = store
        store.groups.open()
        wait_until(lambda: any(node.name == member.node for node in member.nodes()), "it is signed")

    def ask(self, name: str) -> GroupHolders:
        return self.stores[name].groups

    def sleep(self, name: str) -> None:
        self._database.execute(
            "UPDATE kuvasz.lease SET until = clock_timestamp() - interval '1 s' WHERE cluster = %s",
            (f"tests/apply/{self.node(name)}",),
        )

    def drain(self, name: str) -> None:
        assert self.stores[name]._nodes.drain(self.node(name), drains=True)

    def node(self, name: str) -> str:
        return self.stores[name]._lease.node


@pytest.fixture(params=["memory", pytest.param("coordinator", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with contextlib.ExitStack() as exits:
        if request.param == "memory":
            yield InMemory()
        else:
            yield Coordinated(request.getfixturevalue("database"), tmp_path, exits)


def test_a_group_is_held_by_one_until_it_is_given_back(world: World) -> None:
    world.begin("one")
    world.begin("two")
    one, two = (world.node(name) for name in ("one", "two"))
    assert set(world.ask("one").hold({"a": 2, "b": 3}, "map")) == {"a", "b"}
    assert set(world.ask("two").hold({"b": 3, "c": 1}, "map")) == {"c"}
    found = world.ask("two").shared()
    assert found.node == two
    assert found.nodes == {one: ApplierNode(map="map"), two: ApplierNode(map="map")}
    assert {name: (group.node, group.lives, group.targets) for name, group in found.held.items()} == {
        "a": (one, True, 2), "b": (one, True, 3), "c": (two, True, 1),
    }  # fmt: skip
    world.ask("two").release(["b"])  # not its own
    assert world.ask("one").shared().held["b"].node == one
    world.ask("one").release(["b"])
    assert "b" not in world.ask("one").shared().held
    assert set(world.ask("two").hold({"b": 4}, "map")) == {"b"}


def test_what_is_held_may_be_said_anew(world: World) -> None:
    world.begin("one")
    world.ask("one").hold({"a": 2}, "map")
    assert set(world.ask("one").hold({"a": 5}, "other")) == {"a"}
    found = world.ask("one").shared().held["a"]
    assert (found.map, found.targets) == ("other", 5)


def test_who_is_late_is_ended_before_anything_of_it_is_taken(world: World) -> None:
    world.begin("one")
    world.begin("two")
    one, two = (world.node(name) for name in ("one", "two"))
    world.ask("one").hold({"a": 1, "b": 1}, "map")
    world.sleep("one")
    found = world.ask("two").shared()
    assert set(found.nodes) == {two}
    assert (found.held["a"].node, found.held["a"].lives) == (one, False)
    assert not world.ask("one").hold({"c": 1}, "map"), "who is late takes nothing"
    assert set(world.ask("two").hold({"a": 1}, "map")) == {"a"}
    for write in (lambda: world.ask("one").release(["b"]), lambda: world.ask("one").release(["a"])):
        with pytest.raises(StateTaken):
            write()
    assert world.ask("two").shared().held["a"].node == two
    world.begin("three")
    assert set(world.ask("three").hold({"a": 1, "b": 1}, "map")) == {"b"}


def test_who_is_drained_is_seen(world: World) -> None:
    world.begin("one")
    world.drain("one")
    assert world.ask("one").shared().nodes[world.node("one")].drains


@pytest.mark.postgres
def test_each_that_applies_leaves_an_address_and_the_nearest_comes_first(database: Database, tmp_path: Path) -> None:
    with contextlib.ExitStack() as exits:
        world = Coordinated(database, tmp_path, exits)
        for name in ("one", "two"):
            world.begin(name)
            world.stores[name].address.leave(ServerAddress(url=f"http://h:1/{name}", token=name))
        for name in ("one", "two"):  # as a verb with the map of that process
            verb = CoordinatorStore(lambda: database.url, "tests", tmp_path / name, 30.0)
            exits.callback(verb._database.close)
            found = verb.address.all()
            assert {one.token for one in found} == {"one", "two"}
            assert found[0].token == name
            assert verb.address.find() == found[0]
        world.stores["one"].address.remove(ServerAddress(url="http://h:1/one", token="one"))
        verb = CoordinatorStore(lambda: database.url, "tests", tmp_path / "one", 30.0)
        exits.callback(verb._database.close)
        assert [one.token for one in verb.address.all()] == ["", "two"], "it is there, and cannot be asked"
        found = verb.address.find()
        assert found is not None
        assert found.token == "two"
        world.sleep("two")
        world.sleep("one")
        assert not verb.address.all()
