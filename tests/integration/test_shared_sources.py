"""Several processes that read, on a real coordinator: who holds what, and who is refused at which moment."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, StateTaken
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.orders import KnownPast, StreamAnswer, StreamOrder
from kuvasz.state.staged.ports import LogIndex, LogLease, SourcesMoved, StagedPosition, StagedSlice
from kuvasz.state.staged.sharing import share_of
from kuvasz.verbs.cluster import drain
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

SOURCES = ("de", "es", "eu", "fr", "uk", "us")
ORDER = StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1)
DOES = {ClusterRole.ALL: "replicates", ClusterRole.READ: "reads", ClusterRole.APPLY: "applies"}


class Node:
    """A process of the cluster."""

    def __init__(self, url: str, folder: Path, lease_s: float, role: ClusterRole) -> None:
        self.store = CoordinatorStore(lambda: url, "tests", folder, lease_s)
        self.lost: list[str] = []
        self.member = self.store.member("tests", self.lost.append, role)
        self._does = DOES[role]

    @property
    def name(self) -> str:
        return self.member.node

    @property
    def index(self) -> LogIndex:
        return self.store.log_index

    def take(self) -> bool:
        return self.member.take(self._does, "map") is None

    def sleep(self) -> None:
        """Neither renew nor notice anything any more, as a process that is stopped."""
        self.member._heartbeat._stop.set()

    def held(self) -> set[str]:
        return set(self.index.shared().orders)

    def share(self) -> set[str]:
        """Do what a process that reads does with each look; return what it holds behind it."""
        shared = self.index.shared()
        share = share_of(shared.node, shared.nodes, shared.holders)
        if share.given:
            self.index.release(share.given)
        if share.taken:
            self.index.hold({name: shared.pasts[name] for name in share.taken})
        return self.held()


@pytest.fixture
def node(database: Database, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with contextlib.ExitStack() as stack:

        def make(name: str, role: ClusterRole = ClusterRole.READ, lease_s: float = 30.0) -> Node:
            made = Node(database.url, tmp_path / name, lease_s, role)
            stack.callback(made.member.leave)
            made.member.join()
            return made

        yield make


@pytest.fixture
def applier(node: Callable[..., Node]) -> Node:
    """Return the process that applies, which has ordered all sources."""
    made = node("apply", ClusterRole.APPLY)
    assert made.take()
    made.index.open()
    for source in SOURCES:
        made.index.begin_anew(source, 100)
        made.index.give(source, ORDER, KnownPast())
    return made


def reading(node: Callable[..., Node], *names: str, lease_s: float = 30.0) -> list[Node]:
    made = [node(name, lease_s=lease_s) for name in names]
    for one in made:
        assert one.take()
        one.index.open()
    return made


def settled(nodes: Collection[Node]) -> dict[str, set[str]]:
    """Return what each holds once all have done what they have to."""
    for _ in range(3):
        for one in nodes:
            one.share()
    return {one.name: one.held() for one in nodes}


def assert_shared_out(held: dict[str, set[str]]) -> None:
    assert sorted(source for mine in held.values() for source in mine) == list(SOURCES)
    sizes = [len(mine) for mine in held.values()]
    assert max(sizes) - min(sizes) <= 1


def stage(index: LogIndex, source: str, known: StagedPosition) -> StagedPosition:
    after = dataclasses.replace(known, lsn=known.lsn + 10, ended=known.lsn + 10, number=known.number + 1)
    found = StagedSlice(
        source=source, first=after.number, last=after.number, through=after.lsn, is_open=False,
        object=f"{source} {known.past} {after.number}", at=0, size=1,
    )  # fmt: skip
    index.append(found.object, [found], {source: (known, after)})
    return after


def test_sources_are_shared_and_move_when_one_comes_or_goes(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two")
    before = settled([one, two])
    assert_shared_out(before)
    assert settled([one, two]) == before
    (three,) = reading(node, "three")
    after = settled([one, two, three])
    assert_shared_out(after)
    assert after[one.name] <= before[one.name]
    assert after[two.name] <= before[two.name]
    wanted = {applier.name: None, one.name: 2, two.name: 2, three.name: 2}
    # A node is on the list from its first heartbeat on.
    wait_until(lambda: {found.name: found.sources for found in applier.member.nodes()} == wanted, "all are listed")
    three.member.leave()
    wait_until(lambda: applier.index.unread() or one.share(), "it is anybody's at once")
    last = settled([one, two])
    assert_shared_out(last)
    assert after[one.name] <= last[one.name]
    assert not applier.index.unread()


def test_one_that_is_drained_gives_all_away_and_takes_none(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two")
    settled([one, two])
    wait_until(lambda: applier.member.drain(one.name, drains=True), "it is on the list")
    assert settled([one, two]) == {one.name: set(), two.name: set(SOURCES)}
    assert {found.name for found in applier.member.nodes() if found.is_draining} == {one.name}
    assert applier.member.drain(two.name, drains=True)
    assert settled([one, two])[two.name] == set(SOURCES), "nobody else may take them"
    assert applier.member.drain(one.name, drains=False)
    assert settled([one, two]) == {one.name: set(SOURCES), two.name: set()}
    assert not applier.member.drain("nobody", drains=True)


def test_a_process_that_begins_anew_is_not_drained(
    applier: Node, node: Callable[..., Node], database: Database
) -> None:
    (one,) = reading(node, "one")
    wait_until(lambda: applier.member.drain(one.name, drains=True), "it is on the list")
    database.execute("UPDATE kuvasz.node SET pid = pid + 1")
    with one.store._database.session("sign") as session:
        one.store._nodes.sign(session, "map")
    assert not any(found.is_draining for found in applier.member.nodes())


def test_of_who_sleeps_all_is_taken_over_and_nothing_more_is_written(
    applier: Node, node: Callable[..., Node]
) -> None:
    """It is refused by the coordinator, whatever it does when it wakes, and however far it was."""
    one, two = reading(node, "one", "two", lease_s=2.0)
    settled([one, two])
    mine, known = one.held(), one.index.positions()
    source = min(mine)
    known[source] = stage(one.index, source, known[source])
    one.sleep()
    wait_until(lambda: two.share() == set(SOURCES), "nobody has heard of it for a lease")
    at = two.index.positions()
    assert all(at[name].past > known[name].past for name in mine)
    assert at[source].lsn == 110, "what it had staged counts"
    stage(two.index, source, at[source])
    refused: list[Callable[[], object]] = [
        lambda: stage(one.index, source, known[source]), lambda: one.index.append("x", [], {}),
        lambda: one.index.abandon_open(source, 0, known[source].past),
        lambda: one.index.answer(source, at[source].past, ANSWER), lambda: one.index.release([source]),
    ]  # fmt: skip
    for late in refused:
        with pytest.raises(StateTaken):
            late()
    assert one.index.hold(dict.fromkeys(mine, 1)) == []
    assert applier.index.answers() == {}
    assert [found.last for found in applier.index.slices(source, 0, through=0, most=9)] == [1, 2]
    assert one.take(), "it joins again, with another lease"
    assert_shared_out(settled([one, two]))


ANSWER = StreamAnswer(is_receiving=True, error=None, standing=SourceRecord())


def test_what_was_given_back_is_written_no_more_by_who_gave_it(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two")
    settled([one, two])
    known = one.index.positions()
    given, kept = sorted(one.held())[:2]
    one.index.answer(given, known[given].past, ANSWER)
    one.index.release([given])
    one.index.release([given])
    assert applier.index.answers() == {}
    assert applier.index.unread() == [given]
    after = {name: dataclasses.replace(known[name], lsn=200, number=1) for name in (given, kept)}
    with pytest.raises(SourcesMoved) as caught:
        one.index.append("a", [], {name: (known[name], after[name]) for name in (given, kept)})
    assert caught.value.sources == {given}
    assert two.index.hold({given: known[given].past}) == [], "as it stood before"
    assert two.index.hold({given: two.index.positions()[given].past, kept: known[kept].past}) == [given]
    assert applier.index.unread() == []
    one.index.append("a", [], {kept: (known[kept], after[kept])})


def test_two_that_take_one_source_at_once_do_not_both_have_it(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two")
    seen = one.index.shared().pasts
    assert sorted(one.index.hold(seen)) == list(SOURCES)
    assert two.index.hold(seen) == []
    assert two.index.hold(two.index.shared().pasts) == [], "nor with what stands there by now"
    applier.index.withdraw("eu")
    assert one.held() == set(SOURCES) - {"eu"}
    applier.index.give("eu", ORDER, KnownPast())
    assert one.held() == set(SOURCES), "it stays with who held it"


def test_a_process_that_was_killed_and_begins_anew_takes_its_sources_at_once(
    applier: Node, node: Callable[..., Node]
) -> None:
    (one,) = reading(node, "one")
    settled([one])
    one.sleep()
    one.member._folder.give_back()  # as its end does
    (again,) = reading(node, "one")
    assert again.name == one.name
    assert again.held() == set(), "what the one before held is of another lease"
    assert again.share() == set(SOURCES)
    assert applier.index.unread() == []


def test_objects_of_who_reads_beside_it_are_no_strays(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two", lease_s=2.0)
    first, second = one.store._lease.number, two.store._lease.number
    assert second > first > applier.store._lease.number
    assert two.index.open() == LogLease(one.index.open().log, second, frozenset({first}))
    two.sleep()
    settled([one])
    wait_until(lambda: one.share() == set(SOURCES), "the other one is late")
    assert one.index.open().others == set(), "and can write no more"
    one.member.leave()
    (three,) = reading(node, "three")
    assert three.store._lease.number > second, "also where nobody is left who had it"


def test_one_that_does_everything_waits_until_nobody_reads(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two")
    settled([one, two])
    everything = node("all", ClusterRole.ALL)
    applier.member.leave()
    assert not everything.take()
    one.member.leave()
    assert not everything.take(), "the other one reads still"
    two.member.leave()
    assert everything.take()
    assert not node("late").take()


def test_one_that_does_everything_ends_those_that_were_late(applier: Node, node: Callable[..., Node]) -> None:
    one, two = reading(node, "one", "two", lease_s=2.0)
    settled([one, two])
    one.sleep()
    two.member.leave()
    applier.member.leave()
    everything = node("all", ClusterRole.ALL)
    wait_until(everything.take, "nobody has heard of the other one")
    with pytest.raises(StateTaken):
        one.index.append("a", [], {})


def test_one_of_before_they_could_share_is_waited_for(
    applier: Node, node: Callable[..., Node], database: Database
) -> None:
    """It reads all there is, and knows nothing of who holds what."""
    database.execute(
        "INSERT INTO kuvasz.lease VALUES ('tests/read', 7, 'old', 'reads', 'map', now(), now() + interval '1 min')"
    )
    one = node("one")
    assert not one.take()
    assert applier.index.unread() == [], "it reads them"
    database.execute("UPDATE kuvasz.lease SET until = now() WHERE owner = 'old'")
    assert one.take()
    assert one.store._lease.number > 7
    one.index.open()
    assert one.share() == set(SOURCES)


def test_a_log_of_before_they_could_share_is_made_fit(
    applier: Node, node: Callable[..., Node], database: Database
) -> None:
    database.execute("ALTER TABLE kuvasz.log_source DROP holder, DROP held")
    database.execute("ALTER TABLE kuvasz.node DROP drains")
    (one,) = reading(node, "one")
    assert one.share() == set(SOURCES)
    wait_until(lambda: any(found.sources == len(SOURCES) for found in applier.member.nodes()), "it is on the list")


def test_the_verb_says_what_becomes_of_the_sources(
    applier: Node, node: Callable[..., Node], database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps({
        "cluster": {"coordinator": database.url, "name": "tests"},
        "pipeline": {"state": str(tmp_path / "verb")},
        "databases": [{"database": "shop", "urls": [{"url": database.url}], "tables": {"t": None}}],
    }))  # fmt: skip
    config = load(file, {}).config
    one, two = reading(node, "one", "two")
    settled([one, two])
    wait_until(lambda: len(applier.member.nodes()) == 3, "all are on the list")
    assert drain.run(config, one.name).startswith(f"{one.name} gives its sources away, and takes none")
    assert settled([one, two]) == {one.name: set(), two.name: set(SOURCES)}
    assert drain.run(config, two.name).startswith(f"{two.name} keeps its sources until another process can take them")
    assert drain.run(config, one.name, is_over=True) == f"{one.name} takes its share of the sources again"
    assert settled([one, two]) == {one.name: set(SOURCES), two.name: set()}
    with pytest.raises(ConfigError, match="cluster: there is no process nobody"):
        drain.run(config, "nobody")
    told = drain.run(config, applier.name)
    assert told.startswith(
        f"{applier.name} keeps its targets until another process can take them: no other one applies"
    )
    node("all", ClusterRole.ALL)
    wait_until(lambda: len(applier.member.nodes()) == 4, "it is on the list")
    everything = next(found.name for found in applier.member.nodes() if found.role == "all")
    with pytest.raises(ConfigError, match=r"has role all: only those with role read or apply share anything"):
        drain.run(config, everything)


def test_what_they_have_together_lasts_for_as_long_as_one_of_them_lives(
    applier: Node, node: Callable[..., Node], database: Database
) -> None:
    one, two = reading(node, "one", "two", lease_s=2.0)
    until = "SELECT until - interval '4 s' > %s, owner FROM kuvasz.lease WHERE cluster = 'tests/read'"
    ((begun,),) = database.execute("SELECT until FROM kuvasz.lease WHERE cluster = 'tests/read'")
    two.sleep()
    with database.connect() as session:
        wait_until(lambda: session.execute(until, (begun,)).fetchone() == (True, one.name), "it is renewed")
    found = applier.store._lease.reader()
    assert found is not None
    assert (found.node, found.is_late) == (one.name, False)
