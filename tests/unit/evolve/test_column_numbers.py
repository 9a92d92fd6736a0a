"""Which columns of the catalog a Relation message means."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.evolve import column_notes, known
from kuvasz.evolve.column_numbers import Answer, Time, number
from kuvasz.evolve.known import SourceColumns
from kuvasz.model import PgType, Relation, Seen
from kuvasz.typemap import BUILTIN
from tests.support.examples import examples
from tests.support.source_table import BIGINT, INT, TEXT, VARCHAR, SourceTable

BPCHAR, XML, OID = (BUILTIN[oid] for oid in (1042, 142, 26))


class History:
    """A table with the looks at it, and messages of it."""

    def __init__(self, table: SourceTable | None = None) -> None:
        self.table = table or SourceTable()
        self.known: SourceColumns | None = None
        self.look()

    def look(self) -> None:
        self.known = known.of(self.table.catalog(), {}, self.known)

    def message(self) -> tuple[Relation, Time]:
        return self.table.message(), Time.of(*self.table.begin())

    def answer(self, message: tuple[Relation, Time]) -> Answer:
        assert self.known is not None
        return number(message[0], self.known.history(self.table.catalog()), message[1])

    def numbers(self, message: tuple[Relation, Time]) -> list[int] | None:
        return _numbers(self.answer(message).relation)

    def likely(self, message: tuple[Relation, Time]) -> list[int] | None:
        return _numbers(self.answer(message).likely)


def _numbers(relation: Relation | None) -> list[int] | None:
    return None if relation is None else [column.attnum for column in relation.columns]


def test_an_unchanged_table() -> None:
    history = History()
    history.table.drop(2)
    assert history.numbers(history.message()) == [1, 3]


def test_before_a_rename() -> None:
    history = History()
    message = history.message()
    history.table.alter(2, name="m")
    history.table.add("late")
    assert history.numbers(message) == [1, 2, 3]


def test_a_name_nobody_saw_is_told_by_the_count() -> None:
    history = History()
    history.table.alter(2, name="between")
    message = history.message()
    history.table.alter(2, name="m")
    assert history.numbers(message) == [1, 2, 3]


def test_what_cannot_be_told_is_not_guessed() -> None:
    history = History()
    history.table.drop(history.table.add("p"))
    last = history.table.add("q")
    message = history.message()
    history.table.drop(last)
    assert history.answer(message) == Answer(is_open=True)


def test_dropped_and_added_again_by_another_type() -> None:
    history = History(SourceTable(("id", INT), ("n", INT)))
    before = history.message()
    history.table.drop(2)
    history.table.add("n", TEXT)
    after = history.message()
    assert history.numbers(before) == [1, 2]
    assert history.numbers(after) == [1, 3]


def test_the_last_column_dropped_and_added_again_is_two_columns() -> None:
    history = History()
    before = history.message()
    history.table.drop(3)
    history.table.add("name", TEXT)
    after = history.message()
    assert history.numbers(before) is None
    assert history.numbers(after) is None


def test_the_order_of_transactions_speaks_for_one_of_two_columns() -> None:
    history = History()
    history.table.clock = 1000  # xids of DDL are those of its clock
    history.table.xid = 1000
    before = history.message()
    history.table.clock = 1010
    history.table.drop(3)
    history.table.add("name", TEXT)
    history.table.xid = 1020
    after = history.message()
    assert history.likely(before) == [1, 2, 3]
    assert history.likely(after) == [1, 2, 4]


def test_a_transaction_that_replaces_a_column_itself_may_have_written_before_or_after_that() -> None:
    history = History()
    history.table.clock = history.table.xid = 1000
    before = history.table.message()
    history.table.drop(3)
    history.table.add("name", TEXT)
    after = history.table.message()
    added = history.table.versions[4]
    time = Time.of(history.table.begin()[0], added)
    assert history.answer((before, time)) == history.answer((after, time)) == Answer(is_open=True)


def test_names_do_not_speak_for_a_column_that_may_have_been_replaced() -> None:
    history = History(SourceTable(("id", INT), ("n", TEXT), ("m", TEXT)))
    history.table.drop(2)
    history.table.alter(3, name="n")
    message = history.message()
    history.table.drop(3)
    assert history.answer(message) == Answer(is_open=True)


def test_neither_do_they_if_a_newer_column_has_the_name_of_the_other() -> None:
    history = History(SourceTable(("id", INT), ("n", TEXT), ("m", TEXT)))
    history.table.drop(2)
    history.table.alter(3, name="n")
    history.table.add("m", INT)
    message = history.message()
    history.table.drop(3)
    assert history.answer(message) == Answer(is_open=True)


def test_a_name_speaks_for_no_column_that_had_another_type_under_it() -> None:
    history = History(SourceTable(("id", INT), ("n", INT), ("c", TEXT)))
    history.table.clock = history.table.xid = 1000
    history.table.drop(3)
    history.table.add("c", VARCHAR)
    message = history.message()
    history.table.clock = 1010
    history.table.alter(4, name="e")
    assert history.answer(message) == Answer(is_open=True)


def test_nothing_speaks_for_columns_of_a_transaction_that_nobody_knows() -> None:
    history = History(SourceTable(("id", INT), ("n", INT), ("d", TEXT)))
    history.table.clock = history.table.xid = 1000
    history.table.alter(3, name="e")
    relation, time = history.message()
    history.table.clock = 1010
    history.table.drop(3)
    history.table.add("e", TEXT)
    assert history.likely((relation, dataclasses.replace(time, xid=0))) is None


def test_names_do_not_speak_for_a_column_in_whose_place_another_may_have_come_and_gone() -> None:
    history = History()
    history.table.clock = history.table.xid = 1000
    history.table.drop(3)
    history.table.add("name", TEXT)
    message = history.message()
    history.table.clock = 1010
    history.table.drop(4)
    history.table.add("more", TEXT)
    assert history.answer(message) == Answer(is_open=True)


def test_a_column_behind_tells_where_the_dropped_one_was() -> None:
    history = History()
    before = history.message()
    history.table.drop(2)
    history.table.add("n")
    assert history.numbers(before) == [1, 2, 3]
    assert history.numbers(history.message()) == [1, 3, 4]


def test_a_remembered_look_comes_before_that_of_today() -> None:
    """Add new, drop old, rename new: the first message has just the names and types of today."""
    history = History(SourceTable(("id", INT), ("b", TEXT)))
    first = history.message()
    history.table.add("c", TEXT)
    second = history.message()
    history.look()
    history.table.drop(2)
    history.table.alter(3, name="b")
    third = history.message()
    assert history.numbers(first) == [1, 2]
    assert history.numbers(second) == [1, 2, 3]
    assert history.numbers(third) == [1, 3]


def test_without_that_look_nothing_is_proved() -> None:
    history = History(SourceTable(("id", INT), ("b", TEXT)))
    first = history.message()
    history.table.add("c", TEXT)
    history.table.drop(2)
    history.table.alter(3, name="b")
    assert history.numbers(first) is None


def test_a_type_that_no_row_was_written_anew_for_tells_two_columns_apart() -> None:
    history = History()
    before = history.message()
    history.table.drop(3)
    history.table.add("label", INT)
    after = history.message()
    assert history.numbers(before) == [1, 2, 3]
    assert history.numbers(after) == [1, 2, 4]
    history.table.rewrite()
    assert history.numbers(before) is None


def test_text_and_varchar_are_no_different_types() -> None:
    history = History()
    before = history.message()
    history.table.drop(3)
    history.table.add("label", VARCHAR)
    assert history.numbers(before) is None


@pytest.mark.parametrize(
    ("before", "after"), [(TEXT, BPCHAR), (VARCHAR, BPCHAR), (VARCHAR, TEXT), (XML, TEXT), (XML, VARCHAR), (INT, OID)]
)
def test_a_type_that_became_another_without_a_word_is_no_proof_of_a_later_column(
    before: PgType, after: PgType
) -> None:
    """PostgreSQL takes these for one another as they are (pg_cast, castmethod b), and writes no row anew."""
    history = History(SourceTable(("id", INT), ("n", before)))
    history.table.alter(2, pg_type=after)
    message = history.message()
    history.table.drop(2)
    history.table.add("n", after)
    assert history.numbers(message) is None


def test_a_column_list_of_the_publication_counts() -> None:
    table = SourceTable(("id", INT), ("secret", INT), ("a", INT), ("b", INT))
    table.hidden, table.list_version = frozenset({2}), 7
    history = History(table)
    assert history.numbers(history.message()) == [1, 3, 4]
    table.add("c")
    table.hidden = frozenset({2, 5})
    assert history.numbers(history.message()) == [1, 3, 4]


def test_a_column_list_nobody_knows_of_fits_nothing() -> None:
    table = SourceTable(("id", INT), ("secret", INT), ("a", INT), ("b", INT))
    history = History(table)
    table.hidden = frozenset({2})
    assert history.answer(history.message()) == Answer()


def test_a_transaction_that_a_look_does_not_show_is_not_explained_by_it() -> None:
    history = History()
    message = history.message()
    unseen = dataclasses.replace(
        history.table.catalog(), seen=Seen(lsn=history.table.lsn, until=history.table.lsn, running=frozenset({11}))
    )
    assert history.known is not None
    assert number(message[0], history.known.history(unseen), message[1]) == Answer()


def test_of_the_past_it_means_what_it_meant_at_the_position() -> None:
    history = History(SourceTable(("id", INT), ("b", TEXT)))
    history.table.drop(2)
    history.table.add("b", TEXT)
    history.look()
    message, _ = history.message()
    history.table.lsn += 100
    assert history.numbers((message, Time.at(history.table.lsn))) == [1, 3]


def test_what_an_earlier_version_remembered_counts_as_seen_before_everything() -> None:
    history = History()
    text = '{"oid": 100, "columns": {"id": 1, "n": 2, "name": 3}}'
    (history.known,) = column_notes.parse({column_notes.PREFIX + "eu": text}, "t").values()
    message = history.message()
    history.table.add("x")
    assert history.numbers(message) == [1, 2, 3]
    assert history.numbers(history.message()) == [1, 2, 3, 4]


def test_many_dropped_columns_take_no_time() -> None:
    history = History()
    for turn in range(300):
        history.table.drop(history.table.add(f"c{turn}"))
    for turn in range(60):
        history.table.add(f"k{turn}")
    message = history.message()
    for turn in range(60):
        history.table.alter(history.table.number(f"k{turn}"), name=f"l{turn}")
    assert history.answer(message) == Answer(is_open=True)


_names = st.sampled_from(["a", "b", "c", "d"])
_steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "drop", "drop", "rename", "retype", "look", "message", "message"]),
        st.integers(0, 5), _names,
    ),
    max_size=18,
)  # fmt: skip


def _step(table: SourceTable, step: tuple[str, int, str]) -> None:
    what, place, name = step
    names = {column.name for column in table.live.values()}
    rest = [attnum for attnum in table.live if attnum != 1]
    chosen = rest[place % len(rest)] if rest else None
    if what == "add" and name not in names:
        table.add(name, TEXT if place % 2 else INT)
    elif what == "drop" and chosen:
        table.drop(chosen)
    elif what == "rename" and chosen and name not in names:
        table.alter(chosen, name=name)
    elif what == "retype" and chosen:
        table.alter(chosen, pg_type=BIGINT)
        table.rewrite()


@settings(max_examples=examples(300), deadline=None)
@given(_steps, st.booleans())
def test_a_message_of_any_time_is_numbered_right_or_not_at_all(
    steps: list[tuple[str, int, str]], has_list: bool
) -> None:
    """Between two looks anything may happen; there is nothing that a wrong answer is excused by."""
    history = History()
    table = history.table
    if has_list:
        table.hidden, table.list_version = frozenset({2}), 7
        history = History(table)
    messages = []
    for step in steps:
        _step(table, step)
        table.lsn += 1
        if step[0] == "look":
            history.look()
        elif step[0] == "message":
            messages.append((history.message(), [one for one in table.live if one not in table.hidden]))
    history.look()
    for message, right in messages:
        found = history.numbers(message)
        assert found is None or found == right
