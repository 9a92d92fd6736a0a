"""What every index of a staged log owes: see `kuvasz.state.staged.ports`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, StateTaken
from kuvasz.model import Applied, SourcePosition
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.coordinated import CoordinatedIndex
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder
from kuvasz.state.staged.ports import LogIndex, SourcesMoved, StagedPosition, StagedSlice
from tests.support.postgres import Database
from tests.support.waiting import wait_until


@pytest.fixture(params=["memory", pytest.param("coordinator", marks=pytest.mark.postgres)])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogIndex]:
    if request.param == "memory":
        made: LogIndex = MemoryIndex()
        made.open()
        yield made
    else:
        url = request.getfixturevalue("database").url
        store = CoordinatorStore(lambda: url, "tests", tmp_path / "state", 30.0)
        assert store._lease.take("tests", "") is None
        made = store.log_index
        made.open()
        yield made
        store._database.close()


@pytest.fixture
def reader(index: LogIndex) -> LogIndex:
    """Return the index of a process that reads."""
    if isinstance(index, CoordinatedIndex):
        index._lease.give_back()
        index._lease.role = ClusterRole.READ
        assert index._lease.take("reads", "") is None
    return index


def piece(source: str, number: int, through: int, name: str = "a", *, is_open: bool = False) -> StagedSlice:
    return StagedSlice(
        source=source, first=number, last=number, through=through, is_open=is_open, object=name, at=0, size=10
    )


def position(lsn: int, number: int, *, ended: int | None = None, applied: int = 0) -> StagedPosition:
    return StagedPosition(lsn=lsn, ended=lsn if ended is None else ended, number=number, applied=applied)


def numbers(index: LogIndex, source: str, after: int = 0, through: int = 0, most: int = 9) -> list[int]:
    return [one.last for one in index.slices(source, after, through=through, most=most)]


def test_what_is_appended_is_found_in_order(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.begin_anew("us", 7)
    assert index.positions() == {
        "eu": StagedPosition(lsn=100, ended=0, number=0, applied=100),
        "us": StagedPosition(lsn=7, ended=0, number=0, applied=7),
    }
    one, two = piece("eu", 1, 200), piece("us", 1, 20)
    index.append("a", [one, two], {
        "eu": (position(100, 0), position(210, 1, ended=200)), "us": (position(7, 0), position(20, 1)),
    })  # fmt: skip
    index.append("b", [piece("eu", 2, 300, "b")], {"eu": (position(210, 1), position(300, 2))})
    assert index.slices("eu", 0, through=0, most=9) == [one, piece("eu", 2, 300, "b")]
    assert index.slices("us", 0, through=0, most=9) == [two]
    assert index.positions()["eu"] == StagedPosition(lsn=300, ended=300, number=2, applied=100)
    assert (numbers(index, "eu", 1), numbers(index, "eu", through=200)) == ([2], [2])
    assert numbers(index, "eu", most=1) == [1]
    assert set(index.objects()) == {"a", "b"}
    assert index.count() == 2


def test_it_is_known_what_is_needed_and_where_that_is(index: LogIndex) -> None:
    assert (index.lies_in(), set(index.needed())) == (None, set())
    index.begin_anew("eu", 100)
    index.append("a", [piece("eu", 1, 200)], {"eu": (position(100, 0), position(200, 1))})
    index.lay("s3://lake/log")
    assert (index.lies_in(), set(index.needed())) == ("s3://lake/log", {"a"})
    index.applied({"eu": 200})
    assert (set(index.objects()), set(index.needed())) == ({"a"}, set()), "it is known until it is gone"


def test_it_is_known_what_names_of_objects_begin_with(index: LogIndex) -> None:
    assert index.word() == index.open().log


def test_of_much_that_is_needed_some_is_named(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    at = position(100, 0)
    for number, name in enumerate("cab"):
        first = 2 * number + 1
        slices = [piece("eu", one, 100 + one, name) for one in (first, first + 1)]
        after = position(102 + first, first + 1)
        index.append(name, slices, {"eu": (at, after)})
        at = after
    found = [list(index.needed(most)) for most in (1, 2, 3, 9)]
    assert found == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    index.applied({"eu": 104})
    assert list(index.needed()) == ["b"]


def test_a_source_may_move_without_an_object(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.append("a", [], {"eu": (position(100, 0), position(150, 1, ended=0))})
    assert index.positions()["eu"] == StagedPosition(lsn=150, ended=0, number=1, applied=100)
    assert set(index.objects()) == set()


def test_who_believes_a_source_elsewhere_is_refused_and_nothing_of_it_stays(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.begin_anew("us", 100)
    move = {"eu": (position(100, 0), position(200, 1)), "us": (position(90, 0), position(200, 1))}
    with pytest.raises(StateTaken, match="elsewhere"):
        index.append("a", [piece("eu", 1, 200)], move)
    with pytest.raises(StateTaken, match="elsewhere"):
        index.append("b", [piece("new", 1, 200)], {"new": (position(0, 0), position(200, 1))})
    assert (numbers(index, "eu"), set(index.objects())) == ([], set())
    assert index.positions()["eu"].lsn == 100


@pytest.mark.parametrize("slices", [True, False])
def test_an_attempt_of_which_no_answer_came_may_be_made_again(index: LogIndex, slices: bool) -> None:
    index.begin_anew("eu", 100)
    found = [piece("eu", 1, 200)] if slices else []
    for _ in range(2):
        index.append("a", found, {"eu": (position(100, 0), position(200, 1))})
    assert numbers(index, "eu") == [1] * slices
    assert index.positions()["eu"].lsn == 200


def test_what_is_applied_goes_and_objects_of_which_nothing_is_needed(index: LogIndex) -> None:
    for source in ("eu", "us"):
        index.begin_anew(source, 100)
    index.append("a", [piece("eu", 1, 200), piece("us", 1, 200)], {
        "eu": (position(100, 0), position(200, 1)), "us": (position(100, 0), position(200, 1)),
    })  # fmt: skip
    index.append("b", [piece("eu", 2, 300, "b")], {"eu": (position(200, 1), position(300, 2))})
    assert index.applied({"eu": 199}).names == []
    assert index.applied({"eu": 200}).names == []
    assert (numbers(index, "eu"), numbers(index, "us")) == ([2], [1])
    assert index.applied({"eu": 150, "us": 250}).names == ["a"]
    assert index.positions()["eu"].applied == 200, "it never goes back"
    assert index.applied({"eu": 300}).names == ["a", "b"], "it is not said to be removed"
    assert index.applied({}, most=1).names == ["a"]
    assert index.applied({}, removed=["a"]).names == ["b"]
    assert (set(index.objects()), numbers(index, "eu")) == ({"b"}, [])
    assert index.applied({}, removed=["b"]).names == []
    assert index.positions()["eu"] == StagedPosition(lsn=300, ended=300, number=2, applied=300)


def test_parts_of_a_transaction_that_has_not_ended_are_abandoned_alone(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    at = position(100, 0)
    parts: list[Callable[[], StagedSlice]] = [lambda: piece("eu", 1, 201, is_open=True), lambda: piece("eu", 2, 208)]
    for number, (part, after) in enumerate(zip(parts, [position(100, 1, ended=0), position(208, 2)], strict=True)):
        index.append(f"whole {number}", [dataclasses.replace(part(), object=f"whole {number}")], {"eu": (at, after)})
        at = after
    index.append("part", [piece("eu", 3, 301, "part", is_open=True)], {"eu": (at, position(208, 3))})
    index.abandon_open("eu", 308)
    assert numbers(index, "eu") == [1, 2, 3], "its end came, and is staged next"
    index.abandon_open("eu", 208)
    assert numbers(index, "eu") == [1, 2]
    assert index.positions()["eu"].number == 3, "numbers are never used twice"


def test_a_source_is_set_back_where_its_server_is_another_one(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.append("a", [piece("eu", 1, 200)], {"eu": (position(100, 0), position(300, 1, ended=200))})
    index.applied({"eu": 290})
    index.set_back("eu", 220)
    assert index.positions()["eu"] == StagedPosition(lsn=220, ended=200, number=1, applied=220)
    index.set_back("eu", 400)
    assert index.positions()["eu"].lsn == 220


def test_another_past_has_nothing_of_the_one_before(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.append("a", [piece("eu", 1, 200)], {"eu": (position(100, 0), position(200, 1))})
    index.begin_anew("eu", 50)
    assert (numbers(index, "eu"), index.positions()["eu"]) == (
        [], StagedPosition(lsn=50, ended=0, number=1, applied=50),
    )  # fmt: skip
    assert index.applied({}).names == ["a"]
    index.append("b", [piece("eu", 2, 80, "b")], {"eu": (position(50, 1), position(80, 2))})
    index.forget("eu")
    assert (index.positions(), numbers(index, "eu")) == ({}, [])
    assert index.applied({}, removed=["a"]).names == ["b"]


def order(*publications: str) -> StreamOrder:
    return StreamOrder(slot="s", publications=publications, system_id="7", timeline=1)


def test_what_was_received_before_a_source_begins_anew_is_refused(index: LogIndex) -> None:
    """So it is, whatever it stands at: the next slot may begin where the one before stood."""
    for source in ("eu", "us"):
        index.begin_anew(source, 100)
    before = index.positions()
    steps: list[Callable[[], None]] = [
        lambda: index.begin_anew("eu", 100), lambda: index.set_back("eu", 100), lambda: index.withdraw("eu"),
        lambda: index.give("eu", order("p"), KnownPast()),
    ]  # fmt: skip
    after = {name: dataclasses.replace(one, lsn=200, number=1) for name, one in before.items()}
    for step in steps:
        step()
        moves = {name: (before[name], after[name]) for name in before}
        with pytest.raises(SourcesMoved) as caught:
            index.append("a", [piece("eu", 1, 200), piece("us", 1, 200)], moves)
        assert caught.value.sources == {"eu"}
        with pytest.raises(SourcesMoved):
            index.abandon_open("eu", 0, before["eu"].past)
        assert (numbers(index, "us"), set(index.objects())) == ([], set()), "all of it or nothing"
        assert index.positions()["eu"].past > before["eu"].past
        before["eu"] = index.positions()["eu"]
        index.abandon_open("eu", 0, before["eu"].past)
    index.append("a", [], {name: (one, dataclasses.replace(one, lsn=200, number=1)) for name, one in before.items()})
    index.forget("eu")
    index.begin_anew("eu", 100)
    assert index.positions()["eu"].past > before["eu"].past, "a number never comes twice"


def test_an_order_stands_until_another_one_is_given_or_it_is_withdrawn(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    assert index.orders() == {}
    known = KnownPast(
        standing=SourceRecord(system_id="7", timeline=2), applied_lsn=5, applied=(Applied(1, 2, 3),),
        copied=(SourcePosition(lsn=4, started_us=6),),
    )  # fmt: skip
    index.give("eu", order("p"), KnownPast())
    first = index.orders()["eu"]
    index.give("eu", order("p"), known)
    assert index.orders() == {"eu": GivenOrder(past=first.past, order=order("p"), known=known)}
    assert index.positions()["eu"].past == first.past
    answer = StreamAnswer(is_receiving=False, error=None, standing=known.standing, past=first.past)
    index.answer("eu", first.past - 1, answer)
    assert index.answers() == {}
    index.answer("eu", first.past, answer)
    assert index.answers() == {"eu": answer}
    index.give("eu", order("p"), KnownPast())
    assert index.answers() == {"eu": answer}
    assert index.give("eu", order("p", "q"), known), "it stands"
    assert index.orders()["eu"].past > first.past
    assert index.answers() == {}, "what was said was said to another one"
    assert index.give("eu", order("p", "q"), KnownPast(), is_again=True)
    last = index.orders()["eu"]
    assert (last.order, last.known) == (order("p", "q"), KnownPast())
    assert not index.give("eu", order("p"), known, is_again=True)
    assert index.orders() == {"eu": last}, "who tells late of an order of before brings it back"
    index.withdraw("eu")
    assert not index.give("eu", order("p", "q"), known, is_again=True)
    assert index.orders() == {}
    index.withdraw("nobody")


def test_a_source_that_is_to_be_read_is_held_by_one_until_it_is_given_back(reader: LogIndex) -> None:
    index = reader
    index.begin_anew("eu", 100)
    index.begin_anew("us", 100)
    assert (index.shared().holders, index.unread()) == ({}, []), "nobody is to read them"
    index.give("eu", order("p"), KnownPast())
    found = index.shared()
    assert (found.nodes, found.holders, dict(found.orders)) == ({found.node: False}, {"eu": None}, {})
    assert list(index.unread()) == ["eu"]
    before = index.positions()["eu"]
    assert index.hold({"eu": before.past - 1, "us": 1, "nobody": 1}) == [], "it stands elsewhere"
    index.answer("eu", before.past, StreamAnswer(is_receiving=True, error=None, standing=KnownPast().standing))
    assert list(index.hold(found.pasts)) == ["eu"]
    assert index.hold(index.shared().pasts) == [], "it is held"
    held = index.shared()
    assert held.holders == {"eu": found.node}
    assert held.orders == {"eu": GivenOrder(past=held.pasts["eu"], order=order("p"), known=KnownPast())}
    assert (index.answers(), list(index.unread())) == ({}, [])
    assert held.pasts["eu"] > before.past, "what was received before counts no more"
    with pytest.raises(SourcesMoved):
        index.append("a", [], {"eu": (before, dataclasses.replace(before, lsn=200, number=1))})
    index.withdraw("eu")
    assert index.shared().orders == {}
    index.give("eu", order("p", "q"), KnownPast())
    assert index.shared().orders["eu"].order == order("p", "q"), "who held it reads on"
    index.release(["eu", "nobody"])
    assert index.shared().holders == {"eu": None}
    assert index.shared().pasts["eu"] > held.pasts["eu"]


def test_parts_that_were_given_up_are_counted(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.append("a", [piece("eu", 1, 201, is_open=True)], {"eu": (position(100, 0), position(100, 1, ended=0))})
    index.abandon_open("eu", 0)
    index.abandon_open("eu", 0)
    assert index.positions()["eu"].given_up == 1


@pytest.mark.postgres
def test_orders_end_where_one_process_does_everything(database: Database, tmp_path: Path) -> None:
    stores = [CoordinatorStore(lambda: database.url, "tests", tmp_path / str(number), 30.0) for number in range(3)]
    roles = (ClusterRole.APPLY, ClusterRole.READ, ClusterRole.ALL)
    does = ("applies", "reads", "replicates")
    for store, role in zip(stores, roles, strict=True):
        store._lease.role = role
    applier, reader, both = (store.log_index for store in stores)
    assert [store._lease.take(what, "") for store, what in zip(stores[:2], does, strict=False)] == [None, None]
    first = reader.open()
    assert applier.open().number != first.number
    applier.begin_anew("eu", 100)
    applier.give("eu", order("p"), KnownPast())
    at = reader.positions()["eu"]
    reader.append("a", [piece("eu", 1, 200)], {"eu": (at, dataclasses.replace(at, lsn=200, number=1))})
    assert (applier.reader() or pytest.fail("there is one")).node == stores[1]._lease.node
    reader.open()
    assert applier.orders().keys() == {"eu"}
    assert stores[2]._lease.take("replicates", "") is not None
    for store in stores[:2]:
        store._lease.give_back()
    assert applier.reader() is None
    assert stores[2]._lease.take("replicates", "") is None
    assert both.open().number > first.number, "objects of before are of before"
    assert both.orders() == {}
    for late in (lambda: reader.append("b", [], {}), lambda: applier.withdraw("eu")):
        with pytest.raises(StateTaken):
            late()
    for store in stores:
        store._database.close()


def test_an_index_is_left_only_when_nothing_is_staged(index: LogIndex) -> None:
    index.begin_anew("eu", 100)
    index.append("a", [piece("eu", 1, 200)], {"eu": (position(100, 0), position(200, 1))})
    with pytest.raises(ConfigError, match="staged changes of eu that the lake lacks"):
        index.retire()
    index.applied({"eu": 200})
    index.retire()
    assert index.positions() == {}


def test_a_later_holder_has_a_greater_number() -> None:
    memory = MemoryIndex()
    assert memory.open() < memory.open()


@pytest.mark.postgres
@pytest.mark.postgres
@pytest.mark.parametrize("is_append", [False, True])
def test_rows_of_sources_are_locked_in_the_order_of_their_names(
    database: Database, tmp_path: Path, is_append: bool
) -> None:
    for luck in ("mergejoin", "indexscan", "bitmapscan"):  # by which they would be found in their order
        database.execute(f'ALTER DATABASE "{database.name}" SET enable_{luck} = off')
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0)
    assert store._lease.take("tests", "") is None
    index = store.log_index
    index.open()
    for source in ("us", "eu"):  # as a look at the whole table finds them
        index.begin_anew(source, 100)

    def change() -> None:
        if is_append:
            moves = {source: (position(100, 0), position(200, 1)) for source in ("us", "eu")}
            index.append("a", [piece(source, 1, 200) for source in moves], moves)
        else:
            index.applied({"us": 150, "eu": 150})

    lock = "SELECT FROM kuvasz.log_source WHERE source = %s FOR UPDATE"
    with psycopg.connect(database.url) as other, concurrent.futures.ThreadPoolExecutor(1) as pool:
        other.execute(lock, ("eu",))
        changed = pool.submit(change)
        waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s)"
        wait_until(lambda: database.execute(waits, (database.name,)) == [(True,)], "it waits for the first row")
        other.execute(f"{lock} NOWAIT", ("us",))  # it has not locked the second one
        other.rollback()
        changed.result(10)
    store._database.close()


def test_who_lost_the_lease_writes_nothing(database: Database, tmp_path: Path) -> None:
    stores = [CoordinatorStore(lambda: database.url, "tests", tmp_path / str(number), 30.0) for number in range(2)]
    late, holder = (store.log_index for store in stores)
    assert stores[0]._lease.take("tests", "") is None
    first = late.open()
    late.begin_anew("eu", 100)
    stores[0]._lease.is_held = True
    stores[0]._lease.give_back()
    assert stores[1]._lease.take("tests", "") is None
    after = holder.open()
    assert (after.log, after.number > first.number) == (first.log, True)
    for refused in (
        lambda: late.append("a", [piece("eu", 1, 200)], {"eu": (position(100, 0), position(200, 1))}),
        lambda: late.begin_anew("eu", 1), lambda: late.abandon_open("eu", 1), lambda: late.applied({"eu": 1}),
        lambda: late.forget("eu"), late.open,
    ):  # fmt: skip
        with pytest.raises(StateTaken, match="another process replicates"):
            refused()
    assert holder.positions()["eu"].lsn == 100
    for store in stores:
        store._database.close()
