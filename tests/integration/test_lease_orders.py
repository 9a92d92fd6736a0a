"""Leases of processes that stop, sleep, wake and get no answers, and whose heartbeats arrive late and out of order.

The coordinator is PostgreSQL, its clock and that of the processes are the test's. Whoever goes by its own clock is
right for as long as it does, and of what excludes each other one alone may write, whatever the others believe.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from typing_extensions import override

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken
from kuvasz.state.coordinator import lease
from kuvasz.state.coordinator.database import CoordinatorDatabase
from kuvasz.state.coordinator.lease import ERASES, REPLICATES, ClusterLease
from kuvasz.state.shares.coordinated import CoordinatedGroups
from kuvasz.state.staged.coordinated import CoordinatedIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

LEASE_S = 10.0

#: What each does.
DOES = {
    "all": (ClusterRole.ALL, REPLICATES), "other": (ClusterRole.ALL, REPLICATES), "verb": (ClusterRole.ALL, ERASES),
    "read": (ClusterRole.READ, "shares"), "read too": (ClusterRole.READ, "shares"),
    "apply": (ClusterRole.APPLY, "applies a share"), "apply too": (ClusterRole.APPLY, "applies a share"),
}  # fmt: skip
NAMES = st.sampled_from(sorted(DOES))
SOURCES, GROUPS = ("eu", "us"), ("g", "h")

#: The coordinator's clock.
_CLOCK = """
CREATE SCHEMA fake;
CREATE TABLE fake.now (at timestamptz);
INSERT INTO fake.now VALUES ('2026-01-01');
CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM fake.now';
"""
_MADE = "SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz' AND tablename <> 'version'"


class FakeDatabase(CoordinatorDatabase):
    """A coordinator whose clock stands still."""

    @override
    def conninfo(self) -> str:
        return super().conninfo().replace("search_path=pg_catalog", "search_path=fake,pg_catalog")


class World:
    """The coordinator, and the time."""

    def __init__(self, database: Database) -> None:
        database.execute(_CLOCK)
        self.at = 1000.0
        self.database = FakeDatabase(lambda: database.url, 10.0, 30.0)
        with self.database.session("make the tables"):
            pass
        applies = ClusterLease(self.database, "tests", lambda: "first", LEASE_S)
        assert applies.take("tests", "") is None
        CoordinatedIndex(self.database, "tests", applies).open()
        CoordinatedGroups(self.database, applies).open()

    def begin(self) -> None:
        """Forget all, and order two sources."""
        with self.database.session("begin anew") as session:
            for (name,) in session.execute(_MADE).fetchall():
                session.execute(f"TRUNCATE kuvasz.{name}")
        given = ClusterLease(self.database, "tests", lambda: "first", LEASE_S)
        assert given.take("tests", "") is None
        index = CoordinatedIndex(self.database, "tests", given)
        for source in SOURCES:
            index.begin_anew(source, 1)
            index.give(source, StreamOrder(slot="s", publications=("p",), system_id="", timeline=1), KnownPast())
        given.give_back()

    def passes(self, seconds: float) -> None:
        self.at += seconds
        self.jumps(seconds)

    def jumps(self, seconds: float) -> None:
        """Have the coordinator's clock alone go on, or back."""
        with self.database.session("let time pass") as session:
            session.execute("UPDATE fake.now SET at = at + %s * interval '1 s'", (seconds,))


class Node:
    """A process."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.role, self.does = DOES[name]
        self.lease = ClusterLease(world.database, "tests", lambda: name, LEASE_S)
        self.lease.role = self.role
        self.index = CoordinatedIndex(world.database, "tests", self.lease)
        self.groups = CoordinatedGroups(world.database, self.lease)
        self.has: set[str] = set()  #: sources or groups that it took
        self.sleeps = False

    def proves(self, session: Any) -> bool:
        """Whether what it writes would be taken."""
        return session.execute(lease.HELD, self.lease.claim).fetchone() is not None

    def excludes(self, other: Node) -> bool:
        """Whether the two never write both."""
        return ClusterRole.ALL in {self.role, other.role} or self.name == other.name


class LeaseMachine(RuleBasedStateMachine):
    """Steps of processes that have leases."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.begin()
        self.nodes = {name: Node(world, name) for name in DOES}
        self.flying: list[tuple[Node, ClusterLease, float]] = []  #: heartbeats under way, and when they were sent
        self.numbers: dict[int, str] = {}
        self.ghosts: list[Node] = []  #: of whom others have taken the place
        self.is_right = True  #: the coordinator's clock has never jumped

    def awake(self, name: str) -> Node | None:
        node = self.nodes[name]
        return None if node.sleeps else node

    @rule(name=NAMES, answers=st.booleans())
    def one_asks_for_its_lease(self, name: str, answers: bool) -> None:
        node = self.awake(name)
        if node is None or node.lease.is_held:
            return
        asks = node.lease if answers else copy.copy(node.lease)
        before = asks.number
        if asks.take(node.does, "map") is None:
            assert asks.number not in self.numbers, "no number is given twice"
            assert asks.number > max(self.numbers, default=0), "who comes later has the greater one"
            assert asks.number > before
            node.has.clear()
            self.numbers[asks.number] = name

    @rule(name=NAMES)
    def one_sends_a_heartbeat(self, name: str) -> None:
        node = self.awake(name)
        if node is not None and node.lease.is_held:
            self.flying.append((node, copy.copy(node.lease), self.world.at))

    @rule(at=st.integers(0, 20), answers=st.booleans())
    def a_heartbeat_arrives(self, at: int, answers: bool) -> None:
        """Any of them, however old, and of whom it may be."""
        if not self.flying:
            return
        node, sent, sent_at = self.flying.pop(at % len(self.flying))
        with self.world.database.session("renew") as session:
            is_mine = sent.renew(session, "map")
        now = self.nodes[node.name]
        if answers and now is node and not node.sleeps and node.lease.is_held and node.lease.number == sent.number:
            if is_mine:
                node.lease.ends_at = max(node.lease.ends_at, sent_at + LEASE_S)
            else:
                node.lease.is_held = False

    @rule(seconds=st.sampled_from([1.0, 4.0, 9.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.passes(seconds)
        for node in self.nodes.values():
            if not node.sleeps and node.lease.is_held and self.world.at > node.lease.ends_at:
                node.lease.is_held = False  # its own clock has told it before that

    @rule(seconds=st.sampled_from([-15.0, 15.0]))
    def the_coordinators_clock_jumps(self, seconds: float) -> None:
        """Or another server takes over from it; who goes by a clock of its own is wrong then, and refused."""
        self.is_right = False
        self.world.jumps(seconds)

    @rule(name=NAMES, sleeps=st.booleans())
    def one_sleeps_or_wakes(self, name: str, sleeps: bool) -> None:
        self.nodes[name].sleeps = sleeps

    @rule(name=NAMES)
    def one_is_killed_and_begins_anew(self, name: str) -> None:
        """What it has sent may arrive all the same, and it may only have seemed dead."""
        self.ghosts.append(self.nodes[name])
        self.nodes[name] = Node(self.world, name)

    @rule(name=NAMES)
    def one_gives_its_lease_back(self, name: str) -> None:
        if node := self.awake(name):
            node.has.clear()
            node.lease.give_back()

    @rule(name=NAMES, answers=st.booleans())
    def one_takes_its_share(self, name: str, answers: bool) -> None:
        """Also one that has slept, and does not know yet that its lease is over."""
        node = self.nodes[name]
        if not node.lease.number or node.role is ClusterRole.ALL:
            return
        with contextlib.suppress(StateTaken):
            if node.role is ClusterRole.READ:
                got = node.index.hold(node.index.shared().pasts)
            else:
                got = node.groups.hold(dict.fromkeys(GROUPS, 1), "map")
            if answers:
                node.has |= set(got)

    @rule(name=NAMES)
    def one_gives_its_share_back(self, name: str) -> None:
        node = self.nodes[name]
        with contextlib.suppress(StateTaken):
            (node.groups if node.role is ClusterRole.APPLY else node.index).release(sorted(node.has))
            node.has.clear()

    @invariant()
    def of_those_that_exclude_each_other_one_may_write(self) -> None:
        with self.world.database.session("look") as session:
            everybody = (*self.nodes.values(), *self.ghosts)
            may = [node for node in everybody if node.lease.number and node.proves(session)]
            for node in self.nodes.values():
                if self.is_right and node.lease.is_held and self.world.at <= node.lease.ends_at:
                    assert node in may, f"{node.name} goes by its clock, and is wrong"
            for one, other in itertools.combinations(may, 2):
                assert not one.excludes(other), f"{one.name} and {other.name} may both write"
            self._shares_are_theirs(session, may)

    def _shares_are_theirs(self, session: Any, may: list[Node]) -> None:
        held = {
            ClusterRole.READ: session.execute("SELECT source, holder, held FROM kuvasz.log_source").fetchall(),
            ClusterRole.APPLY: session.execute("SELECT name, holder, held FROM kuvasz.applied_group").fetchall(),
        }
        for node in may:
            mine = {
                name for name, holder, number in held.get(node.role, ())
                if (holder, number) == (node.lease.node, node.lease.number)
            }  # fmt: skip
            assert node.has <= mine, f"{node.name} has {node.has}, and of it {mine} are its own"


@pytest.fixture
def world(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made: list[World] = []
    monkeypatch.setattr(lease, "clock_s", lambda: made[0].at if made else 0.0)
    made.append(World(database))
    yield made[0]
    made[0].database.close()


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def test_one_alone_may_write_whatever_arrives_when(world: World) -> None:
    run(world, max_examples=25, stateful_step_count=30, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_alone_may_write_in_a_thousand_orders(world: World) -> None:
    run(world, max_examples=1000, stateful_step_count=60)


def run(world: World, **how: Any) -> None:
    make: Callable[[], LeaseMachine] = lambda: LeaseMachine(world)  # noqa: E731
    run_state_machine_as_test(make, settings=settings(**how, **COMMON))
