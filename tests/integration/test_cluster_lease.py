"""The lease of a cluster on a real coordinator: who holds it, who is refused, and who is told in time."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, StateError, StateTaken
from kuvasz.model import SourcePosition
from kuvasz.state.coordinator.adoption import ASIDE
from kuvasz.state.coordinator.database import MADE, VERSION, CoordinatorDatabase
from kuvasz.state.coordinator.lease import clock_s
from kuvasz.state.coordinator.member import CoordinatedMember
from kuvasz.state.coordinator.store import FILE, CoordinatorStore
from kuvasz.state.folder import StateFolder
from kuvasz.state.ports import KnownFile, Note, SourceRecord
from kuvasz.sync import group_shares
from kuvasz.verbs.sources.erasing import ERASES
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

KEY = ("shop.items", "shop_eu")

ROLES_OF_AN_ERASURE = {"read": ClusterRole.READ, "late": ClusterRole.READ, "verb": ClusterRole.ALL}


class Node:
    """A process of the cluster."""

    def __init__(self, url: str, folder: Path, lease_s: float, role: ClusterRole) -> None:
        self.store = CoordinatorStore(lambda: url, "tests", folder, lease_s)
        self.does = {"all": "replicates", "read": "reads", "apply": "applies"}[role]
        self.lost: list[tuple[str, float]] = []  #: why, and how long before the lease's end
        self.member: CoordinatedMember = self.store.member("tests", self._lose, role)

    def _lose(self, why: str) -> None:
        self.lost.append((why, self.store._lease.ends_at - clock_s()))

    def take(self) -> bool:
        return self.member.take(self.does, "map") is None

    def sleep(self) -> None:
        """Neither renew nor notice anything any more, as a process that is stopped."""
        self.member._heartbeat._stop.set()


@pytest.fixture
def node(database: Database, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with contextlib.ExitStack() as stack:

        def make(name: str, lease_s: float = 30.0, role: ClusterRole = ClusterRole.ALL) -> Node:
            made = Node(database.url, tmp_path / name, lease_s, role)
            stack.callback(made.member.leave)
            made.member.join()
            return made

        yield make


def test_one_that_reads_and_one_that_applies_have_a_lease_each(node: Callable[..., Node]) -> None:
    read, apply = node("read", role=ClusterRole.READ), node("apply", role=ClusterRole.APPLY)
    second, everything = node("apply 2", role=ClusterRole.APPLY), node("all")
    assert read.take()
    assert apply.take()
    assert not everything.take()
    wait_until(lambda: len(read.member.nodes()) == 4, "all are seen")
    assert {(found.name, found.role) for found in read.member.nodes() if found.is_holder} == {
        (read.member.node, "read"), (apply.member.node, "apply"),
    }  # fmt: skip
    assert second.take(), "they share the targets"
    assert [found.is_holder for found in read.member.nodes() if found.role == "apply"] == [True, True]
    assert second.store._lease.number > apply.store._lease.number > read.store._lease.number
    read.member.leave()
    assert not everything.take(), "two apply still"
    apply.member.leave()
    assert not everything.take(), "one applies still"
    with second.store._database.session("write a note") as session:
        second.store._lease.prove(session)
    second.member.leave()
    assert everything.take()
    assert not node("apply 3", role=ClusterRole.APPLY).take()
    assert not node("read 2", role=ClusterRole.READ).take()
    with everything.store._database.session("write a note") as session:
        everything.store._lease.prove(session)


def test_one_that_does_everything_ends_those_who_apply_and_are_late(node: Callable[..., Node]) -> None:
    apply, everything = node("apply", lease_s=2.0, role=ClusterRole.APPLY), node("all")
    assert apply.take()
    apply.store.notes.put({KEY: Note(paused_at=1.0)})
    apply.sleep()
    wait_until(everything.take, "nobody has heard of it for a lease")
    with pytest.raises(StateTaken, match="another process replicates by now"):
        apply.store.notes.put({KEY: Note()})
    assert everything.store.notes.all() == {KEY: Note(paused_at=1.0)}


def test_one_of_a_version_that_shared_no_targets_is_waited_for(node: Callable[..., Node], database: Database) -> None:
    """It has the cluster's lease alone, and `applies`."""
    before, now = node("before"), node("now", role=ClusterRole.APPLY)
    assert before.member.take("applies", "map") is None
    assert not now.take()
    before.member.leave()
    assert now.take()


def test_one_that_is_late_has_nothing_of_either_lease(node: Callable[..., Node]) -> None:
    everything, read = node("all", lease_s=2.0), node("read", role=ClusterRole.READ)
    assert everything.take()
    everything.sleep()
    wait_until(read.take, "nobody has heard of it for a lease")
    assert read.member.was_killed
    with (
        everything.store._database.session("write a note") as session,
        pytest.raises(StateTaken, match="another process replicates"),
    ):
        everything.store._lease.prove(session)


def test_one_holds_the_lease_until_it_gives_it_back(node: Callable[..., Node]) -> None:
    one, two = node("one"), node("two")
    assert one.take()
    holder = two.member.take("replicates", "map")
    assert holder is not None
    assert (holder.node, holder.does, holder.is_late) == (one.member.node, "replicates", False)
    wait_until(lambda: len(two.member.nodes()) == 2, "both are seen")
    assert {found.name: found.is_holder for found in two.member.nodes()} == {
        one.member.node: True, two.member.node: False,
    }  # fmt: skip
    one.member.leave()
    assert two.take()
    assert not two.member.was_killed
    assert [found.name for found in two.member.nodes()] == [two.member.node]


def test_what_is_renewed_stays_and_what_is_not_is_taken_over(node: Callable[..., Node]) -> None:
    one, two = node("one", 4.0), node("two", 4.0)
    assert one.take()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert not two.take()
        time.sleep(0.1)
    one.sleep()
    wait_until(two.take, "the lease ends by itself")
    assert two.member.was_killed
    assert not one.lost, "it sleeps"


def test_who_slept_through_its_lease_writes_nothing(node: Callable[..., Node]) -> None:
    one, two = node("one", 2.0), node("two", 2.0)
    assert one.take()
    one.store.notes.put({KEY: Note(paused_at=1.0)})
    one.sleep()
    wait_until(two.take, "the lease ends by itself")
    two.store.witness.note("shop.items", {"eu": 20})
    with pytest.raises(StateTaken, match="another process replicates by now"):
        one.store.notes.put({KEY: Note()})
    one.store.witness.note("shop.items", {"eu": 10})
    assert two.store.notes.all() == {KEY: Note(paused_at=1.0)}
    assert two.store.witness.known("shop.items") == {"eu": 20}


@pytest.mark.parametrize("role", list(ClusterRole))
def test_who_sleeps_within_a_transaction_keeps_its_lease_no_longer(
    node: Callable[..., Node], role: ClusterRole
) -> None:
    """Nor does a machine that dies in one, of whose connection the coordinator hears nothing for hours."""
    one, everything = node("one", 2.0, role), node("all", 2.0)
    assert one.take()

    def is_taken() -> bool:
        with contextlib.suppress(StateError):
            return everything.take()
        return False

    def write() -> None:
        with one.store._database.session("write a note") as session, session.transaction():
            one.store._lease.prove(session)
            one.sleep()
            wait_until(is_taken, "nobody has heard of it for a lease", 20)

    with pytest.raises(StateError, match="cannot write a note"):
        write()


def test_a_lease_is_renewed_while_much_is_brought(node: Callable[..., Node]) -> None:
    """Parked changes of before the cluster: a gigabyte takes longer than a lease."""

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.5)
            return super().read(min(size or -1, 10))

    one = node("one", 2.0)
    assert one.take()
    one.store.pieces.bring("items", Slow(bytes(80)))
    assert not one.lost
    assert one.store.pieces.size("items") == 80
    one.sleep()
    two = node("two", 2.0)
    wait_until(two.take, "the lease ends by itself")
    with pytest.raises(StateTaken):
        one.store.pieces.put("items", 0, bytes(90))
    assert two.store.pieces.size("items") == 80


def test_nothing_is_written_without_a_lease(node: Callable[..., Node]) -> None:
    with pytest.raises(StateTaken):
        node("one").store.notes.put({KEY: Note(paused_at=1.0)})


def test_who_takes_over_reads_what_the_other_one_wrote_last(node: Callable[..., Node]) -> None:
    one, two = node("one"), node("two")
    assert two.store.witness.known("shop.items") == {}, "looked at while it stood by"
    assert one.take()
    one.store.witness.note("shop.items", {"eu": 10})
    one.member.leave()
    assert two.take()
    assert two.store.witness.known("shop.items") == {"eu": 10}


def test_a_process_that_starts_again_need_not_wait_for_its_own_lease(
    database: Database, tmp_path: Path, node: Callable[..., Node]
) -> None:
    one = node("one")
    assert one.take()
    one.sleep()
    one.member._folder.give_back()  # as its end does
    again = node("one")
    assert again.member.node == one.member.node
    assert again.take()
    assert not again.member.was_killed, "itself was"
    (tmp_path / "one" / FILE).write_text("elsewhere-12345678")
    moved = CoordinatorStore(lambda: database.url, "tests", tmp_path / "one", 30.0)
    assert moved._lease.node != one.member.node, "the folder of another machine"


def test_a_holder_is_told_before_its_lease_ends_where_the_coordinator_is_silent(
    database: Database, node: Callable[..., Node]
) -> None:
    one = node("one", 5.0)
    assert one.take()
    away(database)
    wait_until(lambda: one.lost, "it is told")
    ((why, left_s),) = one.lost
    assert (why, left_s > 0) == ("it could not be renewed in time", True)
    with pytest.raises(StateError, match=r"the coordinator .*: cannot take the lease"):
        one.take()


def test_a_holder_is_told_when_somebody_else_has_it(database: Database, node: Callable[..., Node]) -> None:
    one = node("one", 2.0)
    assert one.take()
    database.execute("UPDATE kuvasz.lease SET owner = 'another', number = number + 1")
    wait_until(lambda: one.lost, "it is told")
    assert one.lost[0][0] == "another process has taken it"


def test_first_starts_at_once_make_the_tables_once(database: Database) -> None:
    ready, count = threading.Barrier(8), 8

    def make() -> None:
        found = CoordinatorDatabase(lambda: database.url, 10.0, 40.0)
        ready.wait()
        with found.session("look") as session:
            assert session.execute("SELECT count(*) FROM kuvasz.lease").fetchone() == (0,)
        found.close()

    with ThreadPoolExecutor(count) as threads:
        for made in [threads.submit(make) for _ in range(count)]:
            made.result()
    assert database.execute("SELECT version FROM kuvasz.version") == [(MADE,)]


def test_tables_of_a_newer_kuvasz_are_left_alone(database: Database, node: Callable[..., Node]) -> None:
    node("one")
    database.execute(f"UPDATE kuvasz.version SET version = {VERSION + 1}")
    found = CoordinatorDatabase(lambda: database.url, 10.0, 40.0)
    with (
        pytest.raises(
            ConfigError, match=r"cluster\.coordinator: its tables are of version 3, and this kuvasz knows 2"
        ),
        found.session("look"),
    ):
        pass
    found.close()


def test_a_verb_owns_what_is_remembered_only_while_nobody_replicates(
    node: Callable[..., Node], tmp_path: Path
) -> None:
    one, two = node("one"), node("two")
    assert one.take()
    two.member._heartbeat.stop()
    two.member._folder.give_back()
    with pytest.raises(StateTaken, match=r"the cluster tests is in use: \S+ replicates since "):
        two.store.own("notes a pause in it").take()
    one.member.leave()
    with two.store.own("notes a pause in it"):
        two.store.notes.put({KEY: Note(paused_at=1.0)})
    assert one.take()
    assert one.store.notes.all() == {KEY: Note(paused_at=1.0)}


def test_rows_are_erased_only_while_nobody_reads(node: Callable[..., Node]) -> None:
    """What is staged meanwhile might have some of them, which no receipt would know."""
    read, late, verb = (node(name, 2.0, role) for name, role in ROLES_OF_AN_ERASURE.items())
    assert read.take()
    assert late.take()
    late.sleep()
    assert verb.member.take("notes a pause in it", "") is None, "for that nobody has to be stopped who reads"
    verb.store._lease.give_back()
    assert verb.member.take(ERASES, "") is not None
    read.member.leave()
    wait_until(lambda: verb.member.take(ERASES, "") is None, "of the other one nobody has heard for a lease")
    with late.store._database.session("stage") as session, pytest.raises(StateTaken):
        late.store._lease.prove(session)
    assert not node("again", role=ClusterRole.READ).take()
    verb.store._lease.give_back()
    assert node("at last", role=ClusterRole.READ).take()


def away(database: Database) -> None:
    """Have the coordinator refuse whoever comes, and end those who are there."""
    with psycopg.connect(database.server.url(), autocommit=True) as session:
        session.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS false')
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database.name,))


def test_check_looks_at_the_coordinator_and_makes_nothing(database: Database, tmp_path: Path) -> None:
    looks = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0).member("looks", lambda _: None)
    assert looks.look() == "no tables yet"
    assert database.execute("SELECT to_regnamespace('kuvasz')") == [(None,)]
    database.execute("CREATE ROLE nobody_here LOGIN")
    try:
        weak = database.url.replace("postgres:", "nobody_here:", 1).replace("postgres@", "nobody_here@", 1)
        with pytest.raises(StateError, match="cannot make the schema kuvasz: its role may not"):
            CoordinatorStore(lambda: weak, "tests", tmp_path / "weak", 30.0).member("looks", lambda _: None).look()
    finally:
        database.execute("DROP ROLE nobody_here")
    with looks._database.session("make them"):
        pass
    assert looks.look() == f"tables of version {MADE}"
    looks._database.close()


def test_what_was_remembered_before_the_cluster_is_brought_once(
    database: Database, tmp_path: Path, node: Callable[..., Node]
) -> None:
    before = StateFolder(tmp_path / "one")
    before.notes.put({KEY: Note(paused_at=1.0)})
    before.feeds.keep({"shop_eu": {"shop.items"}}, {"shop_eu": "eu"})
    before.feeds.see({"shop_eu": [("items", True, 1)]})
    before.numbers.given("db", [("shop",), ("crm",)])
    before.witness.note("shop.items", {"shop_eu": 10})
    before.witness.give_up("shop.others", "shop_eu", SourcePosition(lsn=7, history=1))
    record = before.record("shop_eu")
    record.update(SourceRecord(system_id="71", confirmed_lsn=5))
    record.close()
    before.files("shop_eu").put({5: KnownFile(file=5, horizon=100)})
    one, two = node("one"), node("two")
    StateFolder(tmp_path / "two").notes.put({KEY: Note(paused_at=2.0)})
    assert one.take()
    one.member.leave()
    assert two.take()
    store = two.store
    assert store.notes.all() == {KEY: Note(paused_at=1.0)}, "the second one's are those of nobody"
    assert (store.feeds.known(), store.feeds.sids()) == ({"shop_eu": {"shop.items"}}, {"shop_eu": "eu"})
    assert store.feeds.seen() == {"shop_eu": (("items", True, 1),)}
    assert store.numbers.given("db", [("crm",)]) == {("crm",): 2}
    assert store.witness.known("shop.items") == {"shop_eu": 10}
    assert store.witness.given_up("shop.others") == {"shop_eu": (1, 7)}
    assert store.record("shop_eu").standing == SourceRecord(system_id="71", confirmed_lsn=5)
    assert store.files("shop_eu").all() == {5: KnownFile(file=5, horizon=100)}
    assert sorted(file.name for file in (tmp_path / "one" / ASIDE).iterdir()) == [
        "feeds.json", "files", "numbers.json", "positions", "sources", "tables.json",
    ]  # fmt: skip
    assert StateFolder(tmp_path / "one").notes.all() == {}


@pytest.mark.parametrize(
    "role", [one if one is ClusterRole.ALL else pytest.param(one, marks=pytest.mark.slow) for one in ClusterRole]
)
def test_one_that_is_gone_for_good_is_forgotten_and_refused_if_it_wakes(
    node: Callable[..., Node], database: Database, role: ClusterRole
) -> None:
    gone, other = node("gone", 3.0, role), node("other", 3.0, role)
    assert gone.take()
    name = gone.member.node
    wait_until(lambda: any(one.name == name for one in other.member.nodes()), "it is signed")
    with pytest.raises(ConfigError, match="was heard of within the last 3 s"):
        other.member.forget(name)
    gone.sleep()
    wait_until(lambda: _forgotten(other, name), "it is late")
    assert not other.member.forget(name), "nothing is known of it any more"
    assert database.execute("SELECT FROM kuvasz.lease WHERE owner = %s", (name,)) == []
    assert other.member.holder() is None, "whoever takes its place goes by its own map"
    with pytest.raises(StateTaken):
        gone.store.notes.put({KEY: Note(paused_at=1.0)})


def test_groups_of_one_that_is_gone_for_good_are_anybodys_once_it_is_forgotten(node: Callable[..., Node]) -> None:
    """Nobody takes them else who has another map than it had, and that went with its machine."""
    gone, other = (node(name, 3.0, ClusterRole.APPLY) for name in ("gone", "other"))
    for one in (gone, other):
        assert one.take()
        one.store.groups.open()
    assert list(gone.store.groups.hold({"shop": 3}, "its map")) == ["shop"]
    gone.sleep()
    wait_until(lambda: not other.store.groups.shared().held["shop"].lives, "it is late")
    left = other.store.groups.shared()
    assert group_shares.left_by(left, "map") == gone.member.node
    assert group_shares.share_of(left, {"shop": "shop"}, "map").taken == []
    wait_until(lambda: _forgotten(other, gone.member.node), "it is forgotten")
    found = other.store.groups.shared()
    assert group_shares.left_by(found, "map") is None
    assert group_shares.share_of(found, {"shop": "shop"}, "map").taken == ["shop"]
    assert list(gone.store.groups.hold({"shop": 3}, "its map")) == []  # it wakes
    with pytest.raises(StateTaken):
        gone.store.groups.release(["shop"])
    assert other.store._lease.living_appliers() == [other.member.node]


def _forgotten(by: Node, name: str) -> bool:
    with contextlib.suppress(ConfigError):
        return by.member.forget(name)
    return False


@pytest.mark.parametrize(("told", "found"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_what_the_coordinator_has_committed_outlives_a_crash_of_it(database: Database, told: str, found: str) -> None:
    """Whatever its database says: sources let go of what it knows to be staged."""
    database.execute(f'ALTER DATABASE "{database.name}" SET synchronous_commit = {told}')
    opened = CoordinatorDatabase(lambda: database.url, 10.0, 10.0)
    for _ in range(2):
        with opened.session("look") as session:
            assert session.execute("SHOW synchronous_commit").fetchone() == (found,)
