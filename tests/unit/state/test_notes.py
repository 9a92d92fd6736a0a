from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from kuvasz.errors import StateError
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.notes import TableNotes
from kuvasz.state.ports import Note, TableKey

KEY, OTHER = ("shop.items", "shop_eu"), ("shop.others", "shop_eu")
NOTE = Note(paused_at=5.5, is_resync_due=True, failed_at=3.0, message="wrong\nvalue", hint=None)


class Store(MemoryNotes):
    """Counts what is put, and has no room now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.is_full = False

    def put(self, notes: Mapping[TableKey, Note]) -> None:
        if self.is_full:
            raise StateError("no room")
        self.puts += 1
        super().put(notes)


@pytest.fixture
def store() -> Store:
    return Store()


def test_every_change_is_kept(store: Store) -> None:
    notes = TableNotes(store)
    assert notes.get(*KEY) is None
    notes.put(*KEY, NOTE)
    assert (notes.get(*KEY), store.all()) == (NOTE, {KEY: NOTE})
    assert TableNotes(store).get(*KEY) == NOTE
    notes.remove(*KEY)
    assert (notes.get(*KEY), store.all()) == (None, {})


def test_what_says_the_same_is_not_kept_again(store: Store) -> None:
    notes = TableNotes(store)
    notes.put(*KEY, Note())
    notes.remove(*KEY)
    assert store.puts == 0
    notes.put(*KEY, NOTE)
    notes.put(*KEY, NOTE)
    assert store.puts == 1


def test_a_full_disk_ends_nothing_for_a_failure_and_tells_of_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    notes, store.is_full = TableNotes(store), True
    with caplog.at_level(logging.WARNING):
        notes.put_failure(*KEY, NOTE)
    assert [record.__dict__["event"] for record in caplog.records] == ["note_failed"]
    with pytest.raises(StateError):
        notes.put(*KEY, Note())


def test_what_could_not_be_kept_is_kept_with_the_next_that_can(store: Store) -> None:
    notes, store.is_full = TableNotes(store), True
    notes.put_failure(*KEY, NOTE)
    assert notes.get(*KEY) == NOTE
    store.is_full = False
    notes.put(*OTHER, Note(paused_at=1.0))
    assert store.all() == {KEY: NOTE, OTHER: Note(paused_at=1.0)}


def test_a_wish_that_is_refused_counts_for_nothing(store: Store) -> None:
    notes, wish = TableNotes(store), Note(paused_at=1.0)
    notes.put(*KEY, NOTE)
    store.is_full = True
    for refused in (wish, Note()):
        with pytest.raises(StateError):
            notes.put(*KEY, refused)
        assert notes.get(*KEY) == NOTE
        with pytest.raises(StateError):
            notes.put(*OTHER, wish)
        assert notes.get(*OTHER) is None
    notes.put_failure(*OTHER, NOTE)
    with pytest.raises(StateError):
        notes.put(*OTHER, wish)
    store.is_full = False
    notes.put(*OTHER, NOTE)
    assert store.all() == {KEY: NOTE, OTHER: NOTE}, "what is not kept yet is kept, though it says the same"


def test_what_could_not_be_kept_of_a_table_is_not_put_over_what_its_next_process_notes(store: Store) -> None:
    notes, store.is_full = TableNotes(store), True
    notes.put_failure(*KEY, NOTE)
    notes.put_failure(*OTHER, NOTE)
    notes.let_go(*KEY)
    store.is_full = False
    of_another = Note(paused_at=7.0)
    TableNotes(store).put(*KEY, of_another)
    notes.read_again()
    assert (notes.get(*KEY), notes.get(*OTHER)) == (of_another, NOTE)
    notes.put("shop.third", "shop_eu", NOTE)
    assert (store.all()[KEY], store.all()[OTHER]) == (of_another, NOTE)
