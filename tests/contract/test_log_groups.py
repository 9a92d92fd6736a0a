"""What every index of a staged log owes to groups of it: see `LogIndex.group`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, SourceError, StateError, StateTaken, TableTaken
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.lakes.ports import LakeTablePlace
from kuvasz.state.staged import coordinated
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.state.staged.ports import LogGroup, LogIndex, StagedPosition, StagedSlice
from tests.support.groups_machine import GroupsMachine
from tests.support.postgres import Database
from tests.support.promotion_machine import PromotionMachine
from tests.support.waiting import wait_until

ORDER = StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log, as its first group has it and as another one does."""

    first: LogIndex
    blue: LogIndex
    retire: Callable[[], None]
    promote: Callable[[], None]  #: the processes of both are stopped
    begin: Callable[[], None]  #: both, if that was refused
    former: Callable[[], LogIndex]  #: as the first one has it behind that

    def stage(self, name: str, through: int, source: str = "eu") -> None:
        """Have an object be a part of the log, with one slice."""
        at = self.first.positions()[source]
        number = at.number + 1
        piece = StagedSlice(
            source=source, first=number, last=number, through=through, is_open=False, object=name, at=0, size=1
        )
        after = dataclasses.replace(at, lsn=through, ended=through, number=number)
        self.first.append(name, [piece], {source: (at, after)})

    def numbers(self, after: int = 0) -> list[int]:
        return [one.last for one in self.blue.slices("eu", after, through=0, most=9)]


@pytest.fixture(params=["memory", pytest.param("coordinator", marks=pytest.mark.postgres)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    if request.param == "memory":
        index = MemoryIndex()
        index.open()
        yield Log(
            first=index, blue=index.of_group("blue"), retire=lambda: index.retire_group("blue"),
            promote=lambda: index.promote_group("blue", "old"), begin=lambda: None,
            former=lambda: index.of_group("old"),
        )  # fmt: skip
        return
    url = request.getfixturevalue("database").url
    first, blue, old = (
        CoordinatorStore(lambda: url, "tests", tmp_path / str(group), 30.0, group) for group in (None, "blue", "old")
    )

    def begin(*stores: CoordinatorStore) -> None:
        for store in stores:
            store._lease.role = ClusterRole.APPLY
            assert store._lease.take("applies", "") is None

    def promote() -> None:
        for store in (first, blue):
            store._lease.give_back()
        first.log_groups.promote("blue", "old")
        begin(first)

    def former() -> LogIndex:
        begin(old)
        return old.log_index

    begin(first, blue)
    found = Log(
        first=first.log_index, blue=blue.log_index, retire=lambda: blue.log_groups.retire("blue"),
        promote=promote, begin=lambda: begin(first, blue), former=former,
    )  # fmt: skip
    found.first.open()
    yield found
    for store in (first, blue, old):
        store._database.close()


@pytest.fixture
def heard(log: Log) -> Log:
    """Return a log of which the group hears one source."""
    log.first.begin_anew("eu", 100)
    log.blue.open()
    log.blue.begin_anew("eu", 0)
    return log


def test_who_applies_is_known(log: Log) -> None:
    log.blue.open()
    assert (log.first.is_applied(), log.blue.is_applied()) == (True, True)


def test_a_group_begins_where_the_first_one_is_and_the_log_keeps_what_follows(log: Log) -> None:
    log.blue.open()
    with pytest.raises(StateError, match="nothing is staged of eu"):
        log.blue.begin_anew("eu", 0)
    log.first.begin_anew("eu", 100)
    log.first.begin_anew("us", 100)
    for name, through in (("a", 200), ("b", 300)):
        log.stage(name, through)
    assert log.first.applied({"eu": 200}).names == ["a"]
    assert log.blue.positions() == {}, "it hears nothing yet"
    log.blue.begin_anew("eu", 0)
    assert log.blue.positions() == {"eu": StagedPosition(lsn=300, ended=300, number=2, applied=200)}
    assert set(log.blue.wanted()) == {"eu"}
    log.stage("c", 400)
    assert log.first.applied({"eu": 400}, removed=["a"]).names == []
    assert log.first.positions()["eu"].applied == 400
    assert (log.numbers(), set(log.first.objects()), set(log.blue.needed())) == ([2, 3], {"b", "c"}, {"b", "c"})
    assert log.first.count() == log.blue.count() == 2
    assert log.blue.applied({"eu": 300}).names == ["b"], "each of them says so"
    assert log.first.applied({}).names == ["b"]
    assert log.blue.applied({"eu": 400}, removed=["b"]).names == ["c"]
    assert log.first.applied({}, removed=["c"]).names == []
    assert log.blue.positions()["eu"] == dataclasses.replace(log.first.positions()["eu"], applied=400)


def test_what_the_group_has_is_kept_for_the_first_one(heard: Log) -> None:
    heard.stage("a", 200)
    assert heard.blue.applied({"eu": 200}).names == []
    assert heard.first.positions()["eu"].applied == 100
    assert heard.first.applied({"eu": 200}).names == ["a"]


def test_a_group_that_is_retired_keeps_nothing(heard: Log) -> None:
    heard.stage("a", 200)
    heard.first.applied({"eu": 200})
    (group,) = heard.first.groups()
    assert (group.name, group.objects, group.behind_s is not None) == ("blue", 1, True)
    (seen,) = heard.blue.groups()
    assert dataclasses.replace(seen, behind_s=group.behind_s) == group
    if not isinstance(heard.first, MemoryIndex):
        assert group.lives
        with pytest.raises(ConfigError, match="is in use"):
            heard.retire()
        heard.blue._lease.give_back()  # type: ignore[attr-defined]
    heard.retire()
    assert heard.first.groups() == []
    assert heard.first.applied({}).names == ["a"]
    for late in (lambda: heard.blue.applied({"eu": 200}), lambda: heard.blue.rejoin("eu")):
        with pytest.raises(StateTaken):
            late()


def test_a_source_that_the_group_hears_no_more_is_kept_for_it_no_more(heard: Log) -> None:
    heard.stage("a", 200)
    assert heard.first.applied({"eu": 200}).names == []
    heard.blue.withdraw("eu")
    assert (heard.blue.positions(), set(heard.blue.wanted())) == ({}, set())
    assert heard.first.positions()["eu"].lsn == 200, "it is the first one's as before"
    assert heard.first.applied({}).names == ["a"]
    heard.blue.forget("nobody")
    heard.blue.rejoin("eu")
    assert heard.blue.positions() == {}


def test_nothing_of_another_past_is_heard_or_said_before_the_source_was_looked_at(heard: Log) -> None:
    steps: list[Callable[[], None]] = [
        lambda: heard.first.give("eu", ORDER, KnownPast()), lambda: heard.first.withdraw("eu"),
        lambda: heard.first.set_back("eu", 1000),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        step()
        assert heard.blue.positions() == {}
        heard.stage(str(number), 200 + number)
        heard.blue.applied({"eu": 300})
        heard.blue.rejoin("eu")
        assert heard.blue.positions()["eu"] == dataclasses.replace(heard.first.positions()["eu"], applied=100)
    assert heard.numbers() == [1, 2, 3]


def test_a_source_is_set_back_in_all_lakes(heard: Log) -> None:
    heard.stage("a", 200)
    at = heard.first.positions()["eu"]
    heard.first.append("quiet", [], {"eu": (at, dataclasses.replace(at, lsn=300, number=2))})
    for index in (heard.first, heard.blue):
        index.applied({"eu": 290})
    heard.first.set_back("eu", 220)
    heard.blue.applied({"eu": 300})
    heard.blue.rejoin("eu")
    assert heard.blue.positions()["eu"] == StagedPosition(lsn=220, ended=200, number=2, applied=220)
    heard.blue.set_back("eu", 210)
    assert heard.blue.positions()["eu"].applied == 210
    assert heard.first.positions()["eu"].applied == 220


def test_a_group_has_to_begin_anew_with_a_source_that_does(heard: Log) -> None:
    heard.stage("a", 200)
    heard.first.begin_anew("eu", 150)
    heard.blue.rejoin("eu")
    assert heard.blue.positions() == {}, "the log has not what it lacks"
    heard.stage("b", 300)
    assert heard.first.applied({"eu": 300}).names == ["a", "b"], "nothing is kept for a lake that is copied first"
    heard.blue.begin_anew("eu", 0)
    assert heard.blue.positions()["eu"].applied == 300
    heard.first.forget("eu")
    heard.blue.rejoin("eu")
    assert heard.blue.positions() == {}
    heard.first.begin_anew("eu", 300)
    heard.blue.rejoin("eu")
    assert heard.blue.positions() == {}, "it is another one by now"


def test_a_group_orders_nothing_and_proves_that_it_is_read_as_it_needs(heard: Log) -> None:
    blue = heard.blue
    with pytest.raises(SourceError, match="none of the processes without a group has it read"):
        blue.give("eu", ORDER, KnownPast())
    heard.first.give("eu", ORDER, KnownPast())
    with pytest.raises(SourceError, match="another one by now"):
        blue.give("eu", ORDER, KnownPast())
    blue.rejoin("eu")
    blue.give("eu", dataclasses.replace(ORDER, timeline=2), KnownPast())
    assert heard.first.orders() == blue.orders()
    assert blue.orders()["eu"].order == ORDER
    with pytest.raises(SourceError, match="have slot s of cluster 7 read, and this one would have s of 8"):
        blue.give("eu", dataclasses.replace(ORDER, system_id="8"), KnownPast())
    with pytest.raises(SourceError, match="origin: none"):
        blue.give("eu", dataclasses.replace(ORDER, is_own_alone=True), KnownPast())
    with pytest.raises(SourceError, match="publication p_inserts is not in what is read"):
        blue.give("eu", dataclasses.replace(ORDER, publications=("p", "p_inserts")), KnownPast())
    blue.give("eu", dataclasses.replace(ORDER, slot="other"), KnownPast(), is_again=True)
    assert list(blue.unread()) == ["eu"]


def test_a_group_that_is_promoted_and_the_first_one_change_places(heard: Log) -> None:
    """Each goes on where its own lake is, and nothing goes that one of them needs."""
    for number, through in enumerate((200, 300, 400)):
        heard.stage(str(number), through)
    heard.first.applied({"eu": 300})
    heard.blue.applied({"eu": 200})
    heard.first.give("eu", ORDER, KnownPast())
    heard.blue.rejoin("eu")
    before = heard.first.positions()["eu"]
    heard.promote()
    heard.first.open()
    after = heard.first.positions()["eu"]
    assert (after.applied, after.lsn, after.number, after.past) == (200, 400, 3, before.past)
    assert heard.first.orders()["eu"].order == ORDER, "who reads goes on"
    old = heard.former()
    old.open()
    assert old.positions()["eu"].applied == 300
    assert [one.name for one in heard.first.groups()] == ["old"]
    assert [one.through for one in heard.first.slices("eu", 0, through=200, most=9)] == [300, 400]
    assert heard.first.applied({"eu": 400}).names == ["0", "1"]
    assert old.applied({"eu": 400}).names == ["0", "1", "2"]
    with pytest.raises(StateTaken):
        heard.blue.withdraw("eu")


@pytest.mark.parametrize("why", ["it hears none of it", "it began anew", "it changed hands"])
def test_a_group_that_does_not_go_on_with_a_source_is_not_promoted(heard: Log, why: str) -> None:
    name = "us" if why == "it hears none of it" else "eu"
    if why == "it changed hands":
        heard.first.withdraw(name)
    else:
        heard.first.begin_anew(name, 500)
    before = heard.first.positions()[name]
    with pytest.raises(ConfigError, match=f"group blue does not go on with {name}"):
        heard.promote()
    heard.begin()
    assert [one.name for one in heard.first.groups()] == ["blue"]
    assert heard.first.positions()[name] == before
    if not heard.blue.rejoin(name):
        heard.blue.begin_anew(name, 0)
    heard.promote()  # As the hint says.


@pytest.mark.postgres
def test_what_a_group_remembers_goes_with_its_lake_and_no_process_of_before_goes_on(
    database: Database, tmp_path: Path
) -> None:
    first, other, blue, reader = (
        CoordinatorStore(lambda: database.url, "tests", tmp_path / name, 30.0, "blue" if name == "blue" else None)
        for name in ("first", "other", "blue", "reader")
    )
    for store in (first, blue):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        store.groups.open()
        assert list(store.groups.hold({"shop": 1}, "")) == ["shop"]
        store.log_index.open()
        store.notices.put("hook", {"of": store.place})
        table = LakeTablePlace(target="shop.items", uuid=store.place, place=f"s3://lake/{store._group}")
        store.table_owners.claim(table)
    reader._lease.role = ClusterRole.READ
    assert reader._lease.take("reads", "") is None
    first.log_index.begin_anew("eu", 100)
    blue.log_index.begin_anew("eu", 0)
    groups = other.log_groups
    for living, whose in ((blue, "group blue"), (first, "the first group")):
        with pytest.raises(ConfigError, match=f"{whose} is in use"):
            groups.promote("blue", "old")
        living._lease.give_back()
    with pytest.raises(ConfigError, match="no group green"):
        groups.promote("green", "old")
    with pytest.raises(ConfigError, match="has a group blue already"):
        groups.promote("blue", "blue")
    # One of each wakes behind it, and a coordinator that dies within it has done nothing of it.
    database.execute("UPDATE kuvasz.lease SET owner = %s WHERE cluster LIKE %s", (first._lease.node, "tests/apply/%"))
    database.execute("ALTER TABLE kuvasz.lake_table ADD CONSTRAINT dies CHECK (cluster <> 'tests/group/old')")
    with pytest.raises(StateError):
        groups.promote("blue", "old")
    database.execute("ALTER TABLE kuvasz.lake_table DROP CONSTRAINT dies")
    assert [one.name for one in groups.all()] == ["blue"]
    assert first.notices.all() == {"hook": {"of": first.place}}
    groups.promote("blue", "old")
    for woken in (first, blue):
        with pytest.raises(StateTaken):
            woken._documents("notices").put({"hook": {}})
        with pytest.raises(StateTaken):
            woken.log_index.applied({"eu": 900})
    reader.log_index.answers()
    assert reader._lease.renew(_session(reader), "")
    old = CoordinatorStore(lambda: database.url, "tests", tmp_path / "old", 30.0, "old")
    assert other.notices.all() == {"hook": {"of": blue.place}}
    assert old.notices.all() == {"hook": {"of": first.place}}
    assert blue.notices.all() == {}
    # Each has the tables of its own lake, so a process whose map was not changed is refused.
    for store, has, lacks in ((other, blue, first), (old, first, blue)):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        store.table_owners.claim(LakeTablePlace(target="shop.items", uuid=has.place, place=f"s3://lake/{has._group}"))
        with pytest.raises(TableTaken):
            store.table_owners.claim(LakeTablePlace(target="shop.items", uuid=lacks.place))
        store.groups.open()
        assert list(store.groups.hold({"shop": 1}, "")) == ["shop"]
    for store in (first, other, blue, reader, old):
        store._database.close()


@pytest.mark.postgres
def test_the_first_one_may_be_called_as_one_that_ended_before_it_heard_anything(
    database: Database, tmp_path: Path
) -> None:
    first, blue, old = (
        CoordinatorStore(lambda: database.url, "tests", tmp_path / str(name), 30.0, name)
        for name in (None, "blue", "old")
    )
    for store in (first, blue, old):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        store.notices.put("hook", {"of": store.place})
    for store in (first, blue):
        store.log_index.open()
    for index in (first.log_index, blue.log_index):
        index.begin_anew("eu", 100)
    for store in (first, blue):
        store._lease.give_back()
    with pytest.raises(ConfigError, match="group old is in use"):
        first.log_groups.promote("blue", "old")
    old._lease.give_back()
    first.log_groups.promote("blue", "old")
    assert old.notices.all() == {"hook": {"of": first.place}}
    for store in (first, blue, old):
        store._database.close()


@pytest.mark.postgres
def test_a_process_that_is_late_is_waited_for_and_what_it_has_done_is_seen(
    database: Database, tmp_path: Path
) -> None:
    """Else a source that comes meanwhile would be the group's, whose lake has nothing of it."""
    first, blue = (
        CoordinatorStore(lambda: database.url, "tests", tmp_path / str(name), 30.0, name) for name in (None, "blue")
    )
    for store in (first, blue):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        store.log_index.open()
    for index in (first.log_index, blue.log_index):
        index.begin_anew("eu", 100)
    blue._lease.give_back()
    database.execute("UPDATE kuvasz.lease SET until = clock_timestamp()")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with first._database.session("test") as session, session.transaction():
            first._lease.prove(session)
            promoting = pool.submit(blue.log_groups.promote, "blue", "old")
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%kuvasz.lease%'"
            )
            wait_until(lambda: database.execute(waits) == [(1,)], "it is waited for")
            session.execute(coordinated._BEGIN_ANEW, {"cluster": "tests", "source": "us", "lsn": 500})
        with pytest.raises(ConfigError, match="group blue does not go on with us"):
            promoting.result(30)
    assert [one.name for one in blue.log_groups.all()] == ["blue"]
    for store in (first, blue):
        store._database.close()


def _session(store: CoordinatorStore) -> Any:
    return store._database._opened().getconn()


@pytest.mark.postgres
def test_a_group_has_leases_and_documents_of_its_own(database: Database, tmp_path: Path) -> None:
    """So it is one cluster beside the other, but for the log."""
    first, blue, late = (
        CoordinatorStore(lambda: database.url, "tests", tmp_path / str(number), 3.0, group)
        for number, group in enumerate((None, "blue", "blue"))
    )
    for store in (first, blue):
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        assert store.groups.open() is None
        assert list(store.groups.hold({"shop": 1}, "")) == ["shop"]
        store.log_index.open()
        store.notices.put("hook", {"of": store.place})
    assert first.notices.all() != blue.notices.all()
    reader = CoordinatorStore(lambda: database.url, "tests", tmp_path / "reader", 3.0)
    reader._lease.role = ClusterRole.READ
    assert blue.log_index.reader() is None
    green = CoordinatorStore(lambda: database.url, "tests", tmp_path / "green", 3.0, "green")
    assert [store.log_index.is_applied() for store in (first, late, green)] == [True, True, False]
    assert reader._lease.take("reads", "") is None
    assert (blue.log_index.reader() or pytest.fail("there is one")).node == reader._lease.node
    with pytest.raises(ConfigError, match="no group green"):
        first.log_groups.retire("green")
    # One that is dead is forgotten with the group, and whatever wakes of it is refused.
    wait_until(lambda: not first.log_groups.all()[0].lives, "its lease is over")
    first._lease.take("applies", "")
    first.log_groups.retire("blue")
    assert first.log_groups.all() == []
    with pytest.raises(StateTaken):
        blue.log_index.withdraw("eu")
    assert first.notices.all() == {"hook": {"of": first.place}}
    assert late.notices.all() == {}
    assert database.execute("SELECT count(*) FROM kuvasz.applied_group WHERE cluster LIKE 'tests/%'") == [(0,)]
    for store in (first, blue, late, reader, green):
        store._database.close()


@pytest.mark.postgres
def test_who_knows_nothing_of_groups_refuses_to_begin_where_there_are_some(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would remove what they need."""

    def store(name: str, group: str | None = None) -> CoordinatorStore:
        return CoordinatorStore(lambda: database.url, "tests", tmp_path / name, 30.0, group)

    first, blue, old = store("first"), store("blue", "blue"), store("old")
    monkeypatch.setattr("kuvasz.state.coordinator.database.VERSION", 1)
    assert first.log_groups.all() == []
    assert old._database.look() == "tables of version 1"
    monkeypatch.undo()
    blue._lease.role = ClusterRole.APPLY
    assert blue._lease.take("applies", "") is None
    for _ in range(2):
        blue.log_index.open()
    assert database.execute("SELECT version FROM kuvasz.version ORDER BY 1") == [(1,), (2,)]
    assert isinstance(first.log_groups.all()[0], LogGroup)
    monkeypatch.setattr("kuvasz.state.coordinator.database.VERSION", 1)
    with pytest.raises(ConfigError, match="of version 2, and this kuvasz knows 1"):
        store("late").log_groups.all()
    for one in (first, blue, old):
        one._database.close()


COMMON: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def test_neither_of_two_lakes_loses_anything_whatever_happens_to_the_other() -> None:
    run_state_machine_as_test(
        GroupsMachine, settings=settings(max_examples=60, stateful_step_count=40, derandomize=True, **COMMON)
    )


def test_neither_of_two_lakes_loses_anything_when_they_change_places() -> None:
    run_state_machine_as_test(
        PromotionMachine, settings=settings(max_examples=60, stateful_step_count=40, derandomize=True, **COMMON)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_neither_of_two_lakes_loses_anything_when_they_change_places_in_thousands_of_orders() -> None:
    run_state_machine_as_test(
        PromotionMachine, settings=settings(max_examples=1000, stateful_step_count=60, **COMMON)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_neither_of_two_lakes_loses_anything_in_thousands_of_orders() -> None:
    run_state_machine_as_test(GroupsMachine, settings=settings(max_examples=3000, stateful_step_count=60, **COMMON))
