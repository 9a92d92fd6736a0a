from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.chunks import Chunk, Cut
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Column, Relation, Segment, SourcePosition, TableType, Truncation
from tests.support.changes import INT4, ITEMS, Sender, insert, relation

WIDER = relation(oid=7)


def messages(chunk: Chunk) -> list[bytes]:
    data, lengths = b"".join(chunk.parts), np.concatenate(chunk.lengths)
    assert (len(data), int(lengths.sum()), chunk.rows) == (chunk.size, len(data), len(lengths))
    ends = np.cumsum(lengths).tolist()
    return [data[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Segment | Truncation], list[tuple]]:
    """Changes of two sources, and every event in them: source, commit LSN, relation, message, whether open."""
    changes: list[Segment | Truncation] = []
    events: list[tuple] = []
    numbers = iter(range(10**6))
    for name in draw(st.lists(st.sampled_from(["eu", "us"]), max_size=8)):
        sender = draw(st.just(Sender(name, start=1000 * (1 + next(numbers)))))
        is_open = draw(st.booleans())
        if draw(st.integers(0, 4)) == 0:
            truncation = sender.truncation(is_open=is_open)
            changes.append(truncation)
            events.append((name, truncation.commit_lsn, None, None, is_open))
            continue
        found = draw(st.sampled_from([ITEMS, WIDER]))
        sizes = draw(st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=4), min_size=1, max_size=4))
        runs = [(sender.commit_lsn(), [insert(next(numbers), 0, "x" * size) for size in run]) for run in sizes]
        changes.append(sender.segment(runs, is_open=is_open, relation=found))
        for number, (lsn, rows) in enumerate(runs):
            events += [(name, lsn, found, row, is_open and number == len(runs) - 1) for row in rows]
    return changes, events


def flat(cut: Cut) -> list[tuple]:
    found = []
    for step in cut.steps:
        if isinstance(step, Truncation):
            found.append((step.source, step.commit_lsn, None, None))
            continue
        for row, message in enumerate(messages(step)):
            found.append((step.source, step.commit_lsn_of(row), step.relation, message))
    return found


@settings(deadline=None)  # a busy machine is no fault of ours
@given(streams(), st.dictionaries(st.sampled_from(["eu", "us"]), st.integers(0, 12_000)), st.integers(1, 2000))
def test_cutting_is_a_filter(made: tuple, accepted: dict[str, int], chunk_bytes: int) -> None:
    changes, events = made
    cut = chunks.cut(changes, accepted, chunk_bytes, is_soft=True)
    kept = [event for event in events if event[1] >= accepted.get(event[0], 0)]
    for source in ("eu", "us"):
        assert [event for event in flat(cut) if event[0] == source] == [e[:4] for e in kept if e[0] == source]
    assert cut.rows == sum(event[3] is not None for event in kept) == sum(cut.rows_of.values())
    assert cut.skipped == sum(event[3] is not None for event in events) - cut.rows
    # A step is of whole transactions, or of one that goes on.
    is_open = {(event[0], event[1]): event[4] for event in events}
    for step in cut.steps:
        lsn = chunks.open_lsn(step)
        is_chunk = isinstance(step, Chunk)
        lsns = [step.commit_lsn_of(row) for row in range(step.rows)] if is_chunk else [step.commit_lsn]
        assert {is_open[step.source, at] for at in lsns} == {bool(lsn)}
        assert not lsn or set(lsns) == {lsn}
    # No chunk is much larger than asked for, unless one row is.
    for step in cut.steps:
        if isinstance(step, Chunk):
            assert step.size <= 2 * chunk_bytes or step.rows == 1 or step.size <= chunk_bytes + 300
    for source, position in cut.positions.items():
        whole = [event for event in kept if event[0] == source and not event[4]]
        assert position.lsn == max(event[1] for event in whole) + 8
    assert cut.positions.keys() == {event[0] for event in kept if not event[4]}


def test_a_chunk_knows_the_transaction_of_a_row() -> None:
    eu = Sender()
    cut = chunks.cut([eu.transactions([insert(1), insert(2)], [insert(3)])], {}, 1 << 20)
    (chunk,) = cut.steps
    assert [chunk.commit_lsn_of(row) for row in range(4)] == [1100, 1100, 1200, 0]
    assert cut.commit_us == 12000


def test_what_a_source_that_is_left_out_brought_counts_for_nothing() -> None:
    cut = chunks.cut([Sender().one(insert(1)), Sender("us", start=5000).one(insert(1), insert(2))], {}, 1 << 20)
    left = cut.without({"us"})
    assert [step.source for step in left.steps] == ["eu"]
    assert (left.rows, left.rows_of, left.positions.keys(), left.commit_us) == (1, {"eu": 1}, {"eu"}, 11_000)
    assert (left.bytes_of, cut.bytes_of) == ({"eu": len(insert(1))}, {"eu": len(insert(1)), "us": 2 * len(insert(1))})


def test_a_relation_that_is_equal_is_the_same_version() -> None:
    eu = Sender()
    other = Relation(oid=ITEMS.oid, table=ITEMS.table, identity=ITEMS.identity, columns=ITEMS.columns)
    second = eu.segment([(2000, [insert(2)])], relation=other)
    assert len(chunks.cut([eu.one(insert(1)), second], {}, 1 << 20).steps) == 1


def test_reached_never_goes_back_and_counts_what_did_not_touch_the_table() -> None:
    cut = chunks.cut([Sender().one(insert(1))], {}, 1 << 20)
    known = {"eu": SourcePosition(lsn=500, system_id="7"), "us": SourcePosition(lsn=900, commit_lsn=890, rows=3)}
    through = {"eu": 1500, "us": 800, "new": 70}
    assert chunks.reached(cut, through, known) == {
        "eu": SourcePosition(lsn=1500, commit_lsn=1100, rows=1, system_id="7", commit_us=11_000),
        "us": SourcePosition(lsn=900, commit_lsn=890, rows=3),
    }
    assert chunks.reached(cut, {}, {}) == {"eu": SourcePosition(lsn=1108, commit_lsn=1100, rows=1, commit_us=11_000)}


def test_an_era_only_moves_forward() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=5)})
    era.accept({"eu": 3, "us": 7})
    assert era.accepted == {"eu": 5, "us": 7}


def test_the_newest_commit_time_need_not_be_that_of_the_last_transaction() -> None:
    """A replicated transaction has the time of its own server, and the clock of a source may be set back."""
    eu = Sender()
    segment, late = eu.transactions([insert(1)], [insert(2)], [insert(3)]), eu.truncation()
    segment.transactions.commit_us[:] = (10, 70, 30)
    cut = chunks.cut([segment], {}, 1 << 20)
    assert (cut.newest_us, cut.positions["eu"].commit_us) == ({"eu": 70}, 30)
    assert chunks.cut([segment], {"eu": int(segment.transactions.end_lsn[1])}, 1 << 20).newest_us == {"eu": 30}
    assert chunks.cut([late, eu.part(eu.commit_lsn(), insert(4))], {}, 1 << 20).newest_us == {"eu": late.commit_us}
    assert cut.without({"eu"}).newest_us == {}


@settings(deadline=None)
@given(streams(), st.integers(1, 2000))
def test_a_clone_shows_the_same_with_fewer_truncations_of_the_same_rows(made: tuple, chunk_bytes: int) -> None:
    changes, _ = made
    all_of = chunks.cut(changes, {}, chunk_bytes, is_soft=True)
    cut = chunks.cut(changes, {}, chunk_bytes)
    assert (cut.rows, cut.positions, cut.bytes_of) == (all_of.rows, all_of.positions, all_of.bytes_of)
    for source in ("eu", "us"):
        found, wanted = ([event for event in flat(one) if event[0] == source] for one in (cut, all_of))
        assert [event for event in found if event[3]] == [event for event in wanted if event[3]]
        assert shown(found) == shown(wanted)
    assert len(cut.steps) <= len(all_of.steps)
    assert all(step.size <= 2 * max(chunk_bytes, 250) for step in cut.steps if isinstance(step, Chunk))


def shown(events: list[tuple]) -> list[tuple]:
    """Return the rows that are left of a source's events."""
    ends = [place for place, event in enumerate(events) if event[3] is None]
    return events[ends[-1] + 1 if ends else 0 :]


def kinds(cut: Cut) -> list[tuple[str, int]]:
    return [(step.source, 0 if isinstance(step, Truncation) else step.rows) for step in cut.steps]


def test_a_flood_of_truncations_makes_one_file_of_what_they_take_away() -> None:
    """Ten thousand times TRUNCATE and INSERT were as many files, for which all sources of the worker waited."""
    eu, us = Sender(), Sender("us", start=50_000)
    flood = [change for number in range(500) for change in (eu.one(insert(number)), eu.truncation())]
    changes = [us.one(insert(1)), *flood, eu.one(insert(7)), us.one(insert(2))]
    cut = chunks.cut(changes, {}, 1 << 20)
    assert kinds(cut) == [("us", 2), ("eu", 500), ("eu", 0), ("eu", 1)]
    joined = cut.steps[1]
    assert isinstance(joined, Chunk)
    lsns = [int(one.transactions.commit_lsn[0]) for one in flood[::2]]
    assert [joined.commit_lsn_of(row) for row in range(500)] == lsns


def test_a_truncation_of_another_table_or_time_stays() -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    whole, other = eu.truncation(), eu.segment([(eu.commit_lsn(), [insert(1)])], relation=WIDER)
    cut = chunks.cut([whole, other, eu.truncation(), eu.truncation(lsn, is_open=True)], {}, 1 << 20)
    assert kinds(cut) == [("eu", 0), ("eu", 1), ("eu", 0), ("eu", 0)]


@pytest.mark.parametrize(
    ("kind", "is_soft", "wanted"),
    [
        (TableType.HISTORY, False, [("eu", 1), ("eu", 0)] * 2),
        (TableType.CLONE, True, [("eu", 1), ("eu", 0)] * 2),
        (TableType.APPEND, False, [("eu", 2), ("eu", 0), ("eu", 0)]),
        (TableType.CHANGELOG, False, [("eu", 2), ("eu", 0)]),
    ],
)
def test_what_shows_more_than_the_last_row_has_all_truncations_that_it_shows(
    kind: TableType, is_soft: bool, wanted: list[tuple[str, int]]
) -> None:
    """Each ends rows at a time of its own, or is a row, which are then put together, or takes nothing away."""
    eu = Sender()
    changes = [eu.one(insert(1)), eu.truncation(), eu.one(insert(2)), eu.truncation()]
    cut = chunks.cut(changes, {}, 1 << 20, kind, is_soft=is_soft)
    assert kinds(cut) == wanted


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(("kind", "is_soft"), [(TableType.HISTORY, False), (TableType.CLONE, True)])
def test_a_flood_of_truncations_in_a_transaction_ends_rows_once(
    kind: TableType, is_soft: bool, is_whole: bool
) -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    flood: list[Segment | Truncation] = []
    for number in range(500):
        flood += [
            eu.segment([(lsn, [insert(number)])], is_open=not is_whole),
            eu.truncation(lsn, is_open=not is_whole),
        ]
    last = eu.segment([(lsn, [insert(7)])], is_open=not is_whole)
    cut = chunks.cut([*flood, last], {}, 1 << 20, kind, counts=is_soft, is_soft=is_soft)
    assert kinds(cut) == [("eu", 500), ("eu", 0), ("eu", 1)]
    joined = cut.steps[0]
    assert isinstance(joined, Chunk)
    assert joined.facts is not None
    assert joined.facts.ordinals().tolist() == list(range(0, 1000, 2)), "each keeps its place among the events"


def test_a_flood_of_truncations_that_are_rows_is_two_files() -> None:
    eu = Sender()
    flood = [change for number in range(500) for change in (eu.one(insert(number)), eu.truncation())]
    cut = chunks.cut(flood, {}, 1 << 20, TableType.CHANGELOG)
    assert kinds(cut) == [("eu", 500), ("eu", 0)]
    truncation = cut.steps[1]
    assert isinstance(truncation, Truncation)
    facts = chunks.facts_of(truncation)
    assert facts.commit_lsn.tolist() == [one.commit_lsn for one in flood[1::2] if isinstance(one, Truncation)]
    assert facts.row_end.tolist() == list(range(1, 501))


def test_truncations_that_are_rows_stay_apart_where_they_are_seen_at_other_times_or_of_other_columns() -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    whole, goes_on = eu.truncation(), eu.truncation(lsn, is_open=True)
    altered = dataclasses.replace(eu.truncation(), relation=relation(oid=ITEMS.oid, table=WIDER.table))
    other = dataclasses.replace(eu.truncation(), relation=relation(Column(name="more", pg_type=INT4)))
    cut = chunks.cut([whole, altered, other, goes_on], {}, 1 << 20, TableType.CHANGELOG)
    assert [len(step.others) for step in cut.steps if isinstance(step, Truncation)] == [1, 0, 0]
