"""What every state store owes: see `kuvasz.state.ports`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.errors import StateError, StateTaken
from kuvasz.model import Applied, SourcePosition
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.folder import StateFolder
from kuvasz.state.memory import MemoryState
from kuvasz.state.ports import KnownFile, Note, ServerAddress, SourceRecord, StateStore
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.postgres import Database

ITEMS, OTHERS = ("shop.items", "shop_eu"), ("shop.others/x", "shop_us")
NOTE = Note(paused_at=5.5, is_resync_due=True, failed_at=3.0, message="wrong\nvalue", hint=None)
KNOWN = SourceRecord(
    system_id="71", timeline=3, history=1, confirmed_lsn=0x1_0000_0000, started_us=5, proved_lsn=0x1_0000_0003,
    witness=Applied(0x1_0000_0005, 700, 9), looked_lsn=0x1_0000_0007, rest_xid=0x1_0000_0009,
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where one process after another opens the store."""

    open: Callable[[], StateStore]
    keeps_confirmed: bool = True  #: also of a process that was killed

    def left(self, standing: SourceRecord) -> SourceRecord:
        """What is found of a standing whose process was killed."""
        return standing if self.keeps_confirmed else dataclasses.replace(standing, confirmed_lsn=0)


@pytest.fixture(params=["folder", "memory", pytest.param("coordinator", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(open=lambda: StateFolder(tmp_path / "state"))
    elif request.param == "memory":
        memory = MemoryState()
        yield Place(open=lambda: memory)
    else:
        url = request.getfixturevalue("database").url
        with contextlib.ExitStack() as stack:

            def opened() -> CoordinatorStore:
                """Its process holds the lease, however many have done so in the same test."""
                store = CoordinatorStore(lambda: url, "tests", tmp_path / "state", 10.0)
                stack.callback(store._database.close)
                store._lease.number = number
                return store

            number = 1
            first = opened()
            assert first._lease.take("tests", "") is None
            assert first._lease.number == number
            yield Place(open=opened, keeps_confirmed=False)


def test_notes_are_found_by_the_next_process(place: Place) -> None:
    assert place.open().notes.all() == {}
    place.open().notes.put({ITEMS: NOTE, OTHERS: Note(paused_at=1.0)})
    place.open().notes.put({OTHERS: Note(is_repair=True)})
    assert place.open().notes.all() == {ITEMS: NOTE, OTHERS: Note(is_repair=True)}, "others stay as they are"


def test_a_note_that_says_nothing_forgets_the_table(place: Place) -> None:
    store = place.open()
    store.notes.put({ITEMS: NOTE, OTHERS: Note()})
    assert store.notes.all() == {ITEMS: NOTE}
    store.notes.put({ITEMS: Note()})
    assert store.notes.all() == place.open().notes.all() == {}


def test_verdicts_are_found_by_the_next_process(place: Place) -> None:
    first, second = Verdict(at=5.5, lsn="0/1", rows=7, tried_at=5.5), Verdict(error="gone", tried_at=6.0)
    assert place.open().verdicts.all() == {}
    place.open().verdicts.put({ITEMS: first, OTHERS: second})
    place.open().verdicts.put({OTHERS: first})
    assert place.open().verdicts.all() == {ITEMS: first, OTHERS: first}, "others stay as they are"
    place.open().verdicts.put({ITEMS: None})
    assert place.open().verdicts.all() == {OTHERS: first}


def test_what_was_handed_out_or_in_is_no_part_of_the_store(place: Place) -> None:
    store, notes = place.open(), {ITEMS: NOTE}
    store.notes.put(notes)
    notes.clear()
    store.notes.all().clear()
    assert store.notes.all() == {ITEMS: NOTE}
    store.witness.note("shop.items", {"eu": 10})
    dict(store.witness.known("shop.items")).clear()
    assert store.witness.known("shop.items") == {"eu": 10}


def test_a_witness_remembers_over_restarts_until_it_is_told_to_forget(place: Place) -> None:
    witness = place.open().witness
    assert witness.known("shop.items") == {}
    witness.note("shop.items", {"eu": 10, "us": 20})
    witness.note("shop.items", {"eu": 11})
    witness.note("shop.others/x", {"eu": 5})
    again = place.open().witness
    assert again.known("shop.items") == {"eu": 11, "us": 20}
    again.drop("shop.items", "us")
    again.drop("shop.items", "nobody")
    assert again.known("shop.items") == place.open().witness.known("shop.items") == {"eu": 11}
    assert place.open().witness.known("shop.others/x") == {"eu": 5}


def test_a_witness_takes_a_position_that_lies_before_the_last(place: Place) -> None:
    place.open().witness.note("shop.items", {"eu": 10})
    place.open().witness.note("shop.items", {"eu": 9})
    assert place.open().witness.known("shop.items") == {"eu": 9}, "a source that begins anew"


def test_a_witness_remembers_what_was_given_up_until_there_is_something_new(place: Place) -> None:
    witness = place.open().witness
    assert witness.given_up("shop.items") == {}
    for lsn, history in ((10, 1), (90, 0), (9, 1)):
        witness.give_up("shop.items", "eu", SourcePosition(lsn=lsn, history=history))
    witness.give_up("shop.items", "us", SourcePosition(lsn=20))
    again = place.open().witness
    assert (again.given_up("shop.items"), again.given_up("shop.others")) == ({"eu": (1, 10), "us": (0, 20)}, {})
    assert again.known("shop.items") == {}
    again.note("shop.items", {"eu": 11})
    assert place.open().witness.given_up("shop.items") == {"us": (0, 20)}


def test_a_witness_takes_no_new_position_for_one_that_was_given_up(place: Place) -> None:
    witness = place.open().witness
    witness.give_up("shop.items", "eu", SourcePosition(lsn=10, history=1))
    for position in (SourcePosition(lsn=11, history=1), SourcePosition(lsn=5, history=2)):
        witness.expect("shop.items", "eu", position)
        assert place.open().witness.given_up("shop.items") == {"eu": (1, 10)}
    witness.expect("shop.items", "us", SourcePosition(lsn=8))
    witness.expect("shop.items", "eu", SourcePosition(lsn=8, history=1))
    assert place.open().witness.given_up("shop.items") == {"eu": (1, 7)}


def test_an_entry_keeps_its_number_over_restarts(place: Place) -> None:
    shop, crm = ("shop",), ("crm",)
    assert place.open().numbers.given("db", [shop, crm]) == {shop: 1, crm: 2}
    assert place.open().numbers.given("db", [("new",), crm, shop]) == {("new",): 3, crm: 2, shop: 1}
    assert place.open().numbers.given("url", [shop]) == {shop: 1}, "each kind has its own"
    assert place.open().numbers.given("db", []) == {}


def test_no_number_is_given_twice(place: Place) -> None:
    old, new, other = ("shop", "items"), ("shop", "goods"), ("shop", "others")
    numbers = place.open().numbers
    assert numbers.given("tbl", [old, new]) == {old: 1, new: 2}
    numbers.rename("tbl", old, new)
    numbers.rename("tbl", ("shop", "nobody"), other)
    assert place.open().numbers.given("tbl", [new, other, old]) == {new: 1, other: 3, old: 4}, "2 is gone for good"


def test_a_number_stays_with_an_entry_that_comes_by_a_name_which_was_announced(place: Place) -> None:
    numbers = place.open().numbers
    assert numbers.given("tbl", [("old",), ("other",)]) == {("old",): 1, ("other",): 2}
    numbers.announce("tbl", ("old",), ("new",))
    numbers.announce("tbl", ("other",), ("another",))
    numbers.announce("tbl", ("other",), ("other",))
    assert place.open().numbers.given("tbl", [("new",), ("another",)]) == {("new",): 1, ("another",): 3}


def test_numbers_are_brought_from_another_store_with_those_that_are_gone(place: Place) -> None:
    before = MemoryState().numbers
    before.given("db", [("a",), ("b",)])
    before.rename("db", ("b",), ("a",))
    before.given("tbl", [("a", "items")])
    place.open().numbers.bring(before.all())
    assert place.open().numbers.all() == before.all()
    assert place.open().numbers.given("db", [("a",), ("c",)]) == {("a",): 2, ("c",): 3}


def test_what_sources_fed_is_known_to_the_next_process(place: Place) -> None:
    assert (place.open().feeds.known(), place.open().feeds.sids()) == ({}, {})
    place.open().feeds.keep({"eu": {"shop.items", "shop.others"}, "eu/*": set(), "us": {"shop.items"}})
    feeds = place.open().feeds
    feeds.keep({"eu": ["archive.items"], "eu/*": ["shop.events"]}, {"eu": "EU"})
    feeds.keep({}, {"us": None})
    assert place.open().feeds.sids() == {"eu": "EU", "us": None}
    expected = {"eu": {"archive.items"}, "eu/*": {"shop.events"}, "us": {"shop.items"}}
    assert feeds.known() == place.open().feeds.known() == expected, "other sources stay as they are"
    assert feeds.seen() == {}
    feeds.see({"eu": [("orders", True, 1), ("archive.items", False, 2)], "us": []})
    feeds.see({"us": (("items", True, 3),)})
    seen = place.open().feeds.seen()
    assert {source: tuple(found) for source, found in seen.items()} == {
        "eu": (("orders", True, 1), ("archive.items", False, 2)), "us": (("items", True, 3),)
    }  # fmt: skip
    feeds.keep({"us": set()})
    assert place.open().feeds.seen() == seen, "neither forgets what the other one keeps"
    assert place.open().feeds.known()["eu"] == expected["eu"]


def test_files_of_tables_are_found_by_the_next_process(place: Place) -> None:
    assert place.open().files("eu").all() == {}
    place.open().files("eu").put({5: KnownFile(file=5, horizon=100), 6: KnownFile(file=6, horizon=100)})
    place.open().files("eu").put({5: KnownFile(file=7, horizon=1 << 40, truncated=(3, 4))})
    place.open().files("eu").put({8: KnownFile(file=8, horizon=100, toast=9, named=(1, 2))})
    expected = {
        5: KnownFile(file=7, horizon=1 << 40, truncated=(3, 4)),
        6: KnownFile(file=6, horizon=100),
        8: KnownFile(file=8, horizon=100, toast=9, named=(1, 2)),
    }
    assert place.open().files("eu").all() == expected, "others stay as they are"
    assert place.open().files("us").all() == {}, "OIDs are of one source"


def test_a_killed_process_leaves_what_it_was_about_to_confirm(place: Place) -> None:
    record = place.open().record("shop_eu")
    assert record.standing == SourceRecord()
    record.update(KNOWN)
    record.confirming(KNOWN.confirmed_lsn + 5)
    record.confirming(7)  # never back
    expected = dataclasses.replace(KNOWN, confirmed_lsn=KNOWN.confirmed_lsn + 5)
    assert record.standing == expected
    assert place.open().record("shop_eu").standing == place.left(expected)
    assert place.open().record("shop_us").standing == SourceRecord()


def test_a_standing_that_is_taken_over_may_lie_before_the_last(place: Place) -> None:
    record = place.open().record("shop_eu")
    record.update(KNOWN)
    record.update(SourceRecord(system_id="72", confirmed_lsn=5))
    assert place.open().record("shop_eu").standing == place.left(SourceRecord(system_id="72", confirmed_lsn=5))


def test_a_record_that_was_closed_goes_on(place: Place) -> None:
    record = place.open().record("shop_eu")
    record.close()
    record.update(KNOWN)
    record.close()
    record.close()
    assert "shop_eu" in record.place
    found = place.open().record("shop_eu")
    assert found.standing == KNOWN
    found.confirming(KNOWN.confirmed_lsn + 1)
    left = place.left(dataclasses.replace(KNOWN, confirmed_lsn=KNOWN.confirmed_lsn + 1))
    assert place.open().record("shop_eu").standing == left


def test_one_at_a_time_owns_the_store(place: Place) -> None:
    with place.open().own("replicates") as owner:
        owner.take()
        with pytest.raises(StateTaken, match=r"is in use: .* replicates"):
            place.open().own("notes a pause in it").take()
    with place.open().own("notes a pause in it"):
        pass


def test_the_address_of_a_running_kuvasz_is_found_until_it_is_removed(place: Place) -> None:
    assert place.open().address.find() is None
    address = ServerAddress(url="http://127.0.0.1:8000", token="geheim")
    place.open().address.leave(address)
    assert place.open().address.find() == address
    assert "geheim" not in repr(address)
    place.open().address.remove(address)
    place.open().address.remove(address)
    assert place.open().address.find() is None


def test_who_ends_leaves_the_address_of_the_next_one(place: Place) -> None:
    first, second = (ServerAddress(url="http://127.0.0.1:8000", token=token) for token in ("a", "b"))
    place.open().address.leave(first)
    place.open().address.leave(second)
    place.open().address.remove(first)
    assert place.open().address.find() == second


def test_how_far_webhooks_were_told_is_found_by_the_next_process(place: Place) -> None:
    assert place.open().notices.all() == {}
    place.open().notices.put("one", {"number": 1, "seen": {"shop.items": "[]"}})
    place.open().notices.put("two", {"number": 7})
    place.open().notices.put("one", {"number": 2})
    assert place.open().notices.all() == {"one": {"number": 2}, "two": {"number": 7}}


@pytest.mark.postgres
def test_one_process_at_a_time_keeps_what_sources_have(database: Database, tmp_path: Path) -> None:
    """The second one is to know what the first one has kept, before it takes in a table for the same target."""
    stores = [CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 2.0) for _ in range(2)]
    assert stores[0]._lease.take("tests", "") is None
    one, other = (store.feeds for store in stores)
    with one.turn() as is_shared:
        assert is_shared
        one.see({"eu": [("orders", True, 1)]})
        with pytest.raises(StateError, match="cannot change the tables"), other.turn():
            pass
    with other.turn():
        assert other.seen() == {"eu": (("orders", True, 1),)}
    for store in stores:
        store._database.close()


@pytest.mark.postgres
def test_what_a_coordinator_does_not_answer_now_is_neither_unknown_nor_written_over(
    database: Database, tmp_path: Path
) -> None:
    urls = [database.url]
    stores = [CoordinatorStore(lambda: urls[-1], "tests", tmp_path / "state", 10.0) for _ in range(2)]
    assert stores[0]._lease.take("tests", "") is None
    stores[0].feeds.keep({"eu": ["shop.items"]}, {"eu": "EU"})
    stores[0].witness.note("shop.items", {"eu": 10})
    stores[0].record("eu").update(KNOWN)
    stores[0].files("eu").put({5: KnownFile(file=5, horizon=100)})
    again = stores[1]
    again._lease.number = 1
    urls.append("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=1")
    assert again.address.find() is None
    for read in (again.feeds.known, again.feeds.sids, again.feeds.seen, again.notices.all, again.address.all):
        with pytest.raises(StateError):
            read()
    for read_of in (again.witness.known, again.witness.given_up):
        with pytest.raises(StateError):
            read_of("shop.items")  # a lake that was set back would be believed, and noted so
    again.witness.note("shop.items", {"us": 20})
    with pytest.raises(StateError):
        again.feeds.keep({"eu": ["shop.others"]}, {"eu": "other"})  # else what is there would lie
    with pytest.raises(StateError):
        again.feeds.see({"eu": []})
    record, files = again.record("eu"), again.files("eu")
    with pytest.raises(StateError):
        _ = record.standing  # a source that begins by an empty one would have it written over
    with pytest.raises(StateError):
        files.all()
    with pytest.raises(StateError):
        files.put({6: KnownFile(file=6, horizon=200)})
    urls.pop()
    assert again.feeds.known() == {"eu": {"shop.items"}}
    assert again.witness.known("shop.items") == {"eu": 10}
    assert record.standing == dataclasses.replace(KNOWN, confirmed_lsn=0)
    files.put({6: KnownFile(file=6, horizon=200)})
    assert {oid: one.file for oid, one in again.files("eu").all().items()} == {5: 5, 6: 6}
    for store in stores:
        store._database.close()
