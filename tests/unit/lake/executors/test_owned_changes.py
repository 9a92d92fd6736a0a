"""Changes of several sources in one chunk: the outcome is that of each one's own, and so is an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.decode import tuples
from kuvasz.errors import DecodeError
from kuvasz.lake.executors import owned_changes
from kuvasz.lake.executors.owned_changes import RefusedOwner, apply_together
from kuvasz.model import TableType
from kuvasz.modes import dispatch
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.owners import Owner
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts
from tests.support.changes import SAME, TABLE, delete, insert, update
from tests.support.examples import examples
from tests.support.shapes import APPEND, CHANGELOG, CLONE, KEYLESS, shape
from tests.support.wires import joined, message

BAG = shape(KEYLESS, TableType.CLONE)
KINDS = {"clone": CLONE, "append": APPEND, "changelog": CHANGELOG, "no key": BAG}
NAMES = ("eu", "us", "ap")


def facts_of(count: int) -> Facts:
    """Transactions of one row each."""
    runs = [[100 + row, 1_000_000, 7, row + 1, 0] for row in range(count)]
    return Facts.of(np.array(runs, np.int64).reshape(-1, 5))


def alone(to: Shape, name: str, messages: Sequence[bytes], facts: Facts) -> ChunkOutcome:
    data, lengths = joined(list(messages))
    mine = dataclasses.replace(to, source=name, sid=name)
    return dispatch.apply_changes(mine, np.frombuffer(data, np.uint8), lengths, facts)


def owners(counts: Sequence[int]) -> tuple[Owner, ...]:
    ends = np.cumsum(counts).tolist()
    return tuple(Owner(source=name, table=TABLE, sid=name, end=end) for name, end in zip(NAMES, ends, strict=False))


def together(to: Shape, runs: Sequence[Sequence[bytes]], facts: Facts) -> ChunkOutcome:
    data, lengths = joined([message for run in runs for message in run])
    return apply_together(to, owners([len(run) for run in runs]), np.frombuffer(data, np.uint8), lengths, facts)


def outcomes(found: ChunkOutcome) -> list[tuple]:
    """What becomes of each key: what is written, or waits, or None."""
    rows = pa.concat_tables([found.rows, *([found.aside.rows] if found.aside is not None else [])]).to_pylist()
    keys = zip(found.keys.hi.tolist(), found.keys.lo.tolist(), strict=True)
    deltas = [None] * len(found.keys) if found.delta is None else found.delta.tolist()
    return sorted(
        ((key, delta, None if row < 0 else tuple(rows[row].values()))
         for key, row, delta in zip(keys, found.written.tolist(), deltas, strict=True)), key=repr,
    )  # fmt: skip


def _changes(*, is_bag: bool) -> st.SearchStrategy[list[bytes]]:
    ids = st.integers(1, 4)
    if is_bag:
        whole = [b"1", b"2", b"b"]
        one = st.sampled_from([
            insert(1), insert(1, 2), message("D", old=whole, old_tag="O"),
            message("U", [b"1", b"3", b"b"], whole, "O"),
        ])  # fmt: skip
    else:
        one = st.one_of(
            st.builds(insert, ids, ids), st.builds(delete, ids), st.builds(update, ids, ids),
            st.builds(lambda key, old: update(key, 9, SAME, old=old), ids, ids),
        )  # fmt: skip
    return st.lists(one, max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_what_comes_of_several_sources_is_what_comes_of_each(kind: str, data: st.DataObject) -> None:
    to = KINDS[kind]
    runs = [data.draw(_changes(is_bag=to is BAG)) for _ in NAMES]
    facts = facts_of(sum(map(len, runs)))
    begin, each = 0, []
    refused: tuple[int, str] | None = None
    for number, (name, run) in enumerate(zip(NAMES, runs, strict=True)):
        try:
            each.append(alone(to, name, run, facts.part(begin, begin + len(run))))
        except DecodeError as error:  # a value that was never sent
            refused = number, str(error)
            break
        begin += len(run)
    if refused is not None:
        with pytest.raises(RefusedOwner) as caught:
            together(to, runs, facts)
        assert (caught.value.owner, str(caught.value.error)) == refused
        return
    found = together(to, runs, facts)
    assert outcomes(found) == sorted((item for one in each for item in outcomes(one)), key=repr)
    assert found.deleted == sum(one.deleted for one in each)
    assert (found.aside is None) == all(one.aside is None for one in each)
    assert found.whose is not None
    whose = {(hi, lo): number for hi, lo, number in zip(
        found.keys.hi.tolist(), found.keys.lo.tolist(), found.whose.tolist(), strict=True)}  # fmt: skip
    for number, one in enumerate(each):
        assert {whose[pair] for pair in zip(one.keys.hi.tolist(), one.keys.lo.tolist(), strict=True)} <= {number}
    if found.aside is None and to is not BAG:
        assert found.rows.to_pylist() == [row for one in each for row in one.rows.to_pylist()], "in their order"
    elif found.aside is not None:
        waits = [part.sources for one in each if (part := one.aside) is not None]
        assert found.aside.sources.lo.tolist() == [lo for part in waits for lo in part.lo.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_names_the_source_whose_it_is(kind: str) -> None:
    to = KINDS[kind]
    runs = [[insert(1)], [insert(1), insert(2, "many")], [insert(3)]]
    with pytest.raises(RefusedOwner) as caught:
        together(to, runs, facts_of(4))
    assert (caught.value.owner, caught.value.row) == (1, 1)
    assert caught.value.error.message.startswith("source us, table public.items, column n: value 'many' ")


def test_an_error_that_nobody_alone_has_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(to: Shape, *_: object) -> None:
        if to.owners:
            raise DecodeError("together")

    monkeypatch.setattr(owned_changes.dispatch, "apply_changes", refuse)
    with pytest.raises(DecodeError, match="together"):
        together(CLONE, [[insert(1)], [insert(2)]], facts_of(2))


def test_row_messages_are_counted_for_each_source() -> None:
    data, lengths = joined([insert(1), delete(1), update(2), insert(3)])
    counted = tuples.operations_of(np.frombuffer(data, np.uint8), lengths, [2, 2, 4])
    assert counted == ((1, 0, 1), (0, 0, 0), (1, 1, 0))
