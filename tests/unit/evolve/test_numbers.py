"""Which column of the catalog a Relation message means."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.evolve import known
from kuvasz.evolve.changes import compare
from kuvasz.evolve.numbers import number
from tests.unit.evolve.tables import BIGINT, INT, TEXT, SourceTable


def numbers(message: object, table: SourceTable, remembered: object = None) -> list[int] | None:
    found = number(message, table.catalog(), remembered)
    return None if found is None else [column.attnum for column in found.columns]


def test_an_unchanged_table() -> None:
    table = SourceTable()
    table.drop(2)
    assert numbers(table.message(), table) == [1, 3]


def test_before_a_rename_the_old_name_is_remembered() -> None:
    table = SourceTable()
    remembered, message = known.of(table.catalog(), {}), table.message()
    table.alter(2, name="m")
    table.add("late")
    assert numbers(message, table, remembered) == [1, 2, 3]


def test_a_name_nobody_remembers_is_told_by_the_count() -> None:
    table = SourceTable()
    remembered = known.of(table.catalog(), {})
    table.alter(2, name="between")
    message = table.message()
    table.alter(2, name="m")
    assert numbers(message, table, remembered) == [1, 2, 3]


def test_a_name_nobody_remembers_beside_a_dropped_column() -> None:
    table = SourceTable()
    table.drop(2)
    table.add("x")
    remembered = known.of(table.catalog(), {})
    table.alter(3, name="y")
    message = table.message()
    table.alter(3, name="z")
    table.drop(4)
    table.add("w")
    assert numbers(message, table, remembered) == [1, 3, 4]


def test_what_cannot_be_told_is_not_guessed() -> None:
    table = SourceTable()
    remembered = known.of(table.catalog(), {})
    table.drop(table.add("p"))
    last = table.add("q")
    message = table.message()
    table.drop(last)
    assert numbers(message, table, remembered) is None


def test_dropped_and_added_again_by_another_type() -> None:
    table = SourceTable()
    remembered, before = known.of(table.catalog(), {}), table.message()
    table.drop(2)
    table.add("n", TEXT)
    assert numbers(before, table, remembered) == [1, 2, 3]
    assert numbers(table.message(), table, remembered) == [1, 3, 4]


def test_many_dropped_columns_take_no_time() -> None:
    table = SourceTable()
    for turn in range(300):
        table.drop(table.add(f"c{turn}"))
    for turn in range(60):
        table.add(f"k{turn}")
    message = table.message()
    for turn in range(60):
        table.alter(table.number(f"k{turn}"), name=f"l{turn}")
    assert numbers(message, table) is None


_names = st.sampled_from(["a", "b", "c", "d"])
_steps = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "retype", "look"]), st.integers(0, 5), _names), max_size=14
)


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


@settings(max_examples=400, deadline=None)
@given(before=_steps, after=_steps)
def test_a_message_of_any_time_is_numbered_right_or_not_at_all(before: list, after: list) -> None:
    """Between two looks anything may happen; where a name is used again, another copy is asked for instead.

    One thing is beyond what a catalog can show: a column that took a name and was dropped with it, and a new column
    of that name, all between two looks.
    """
    table = SourceTable()
    remembered = known.of(table.catalog(), {})
    unseen: set[str] = set()  # names that renamed columns had since the last look
    message = right = None
    for place, step in enumerate([*before, ("message", 0, ""), *after]):
        _step(table, step)
        if step[0] == "look" and place < len(before):
            remembered = known.of(table.catalog(), {}, remembered)
            unseen = set()
        elif step[0] == "rename":
            unseen.add(step[2])
        elif step[0] == "message":
            message, right = table.message(), list(table.live)
    now = table.catalog()
    added = {column.name for column in now.columns if column.attnum not in remembered.columns}
    is_copied = any(change.why_copy for change in compare(remembered, now))
    found = numbers(message, table, remembered)
    if found is not None and not is_copied and not added & unseen:
        # Two columns that are both gone may be taken for one another.
        assert [number if number in table.live else 0 for number in found] == [
            number if number in table.live else 0 for number in right
        ]
