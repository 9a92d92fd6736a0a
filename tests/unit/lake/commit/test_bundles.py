"""Which chunks are put together, and what they are then."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.fold.keys import Keys
from kuvasz.lake.commit import bundles, chunks
from kuvasz.lake.commit.bundles import Bundle, Step
from kuvasz.lake.commit.chunks import Chunk
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.model import Segment, TableType, Truncation
from tests.support.changes import Sender, insert, relation

#: Two kinds of columns, and one that stays alone.
RELATIONS = [relation(oid=number) for number in range(3)]


def likeness(chunk: Chunk) -> int | None:
    return chunk.relation.oid or None


@st.composite
def streams(draw: st.DrawFn) -> list[Segment | Truncation]:
    """Changes of a few sources in any order; some are of transactions that go on."""
    senders = [Sender(name) for name in ("a", "b", "c", "d")]
    changes: list[Segment | Truncation] = []
    for sender in draw(st.lists(st.sampled_from(senders), max_size=20)):
        if draw(st.integers(0, 5)) == 0:
            changes.append(sender.truncation())
            continue
        rows = [insert(number, 0, "x" * draw(st.integers(0, 80))) for number in range(draw(st.integers(1, 3)))]
        changes.append(
            sender.segment([(sender.commit_lsn(), rows)], is_open=draw(st.integers(0, 6)) == 0,
                           relation=draw(st.sampled_from(RELATIONS)))
        )  # fmt: skip
    return changes


def parts(steps: list[Step]) -> list[Chunk | Truncation]:
    return [part for step in steps for part in (step.chunks if isinstance(step, Bundle) else [step])]


@given(streams(), st.integers(50, 1500))
def test_every_step_is_there_once_and_in_order_of_its_source(
    changes: list[Segment | Truncation], chunk_bytes: int
) -> None:
    steps = list(chunks.cut(changes, {}, chunk_bytes).steps)
    packed = bundles.pack(steps, likeness, chunk_bytes)
    found = parts(packed)
    assert len(found) == len(steps)
    for name in "abcd":
        mine = [id(step) for step in steps if step.source == name]
        assert [id(part) for part in found if part.source == name] == mine
    for step in packed:
        if isinstance(step, Bundle):
            assert step.size <= chunk_bytes
            assert len({chunk.source for chunk in step.chunks}) == len(step.chunks) > 1
            assert len({likeness(chunk) for chunk in step.chunks} - {None}) == 1
            assert not any(chunk.open_lsn for chunk in step.chunks)


@given(st.integers(2, 60), st.integers(500, 4000))
def test_small_sources_need_as_many_bundles_as_their_bytes(count: int, chunk_bytes: int) -> None:
    changes = [Sender(f"s{number}").one(insert(1)) for number in range(count)]
    cut = chunks.cut(changes, {}, chunk_bytes)
    packed = bundles.pack(cut.steps, lambda _: 0, chunk_bytes)
    largest = max(step.size for step in cut.steps)
    assert len(packed) <= -(-sum(step.size for step in cut.steps) // (chunk_bytes - largest))


def test_a_large_chunk_stays_alone() -> None:
    small, large = Sender("small"), Sender("large")
    changes = [small.one(insert(1)), large.one(insert(1, 0, "x" * 600)), Sender("other").one(insert(1))]
    packed = bundles.pack(chunks.cut(changes, {}, 1000).steps, lambda _: 0, 1000)
    assert [bundles.sources_of(step) for step in packed] == [("small", "other"), ("large",)]


def test_what_comes_behind_a_truncation_joins_nothing_before_it() -> None:
    eu, us = Sender("eu"), Sender("us")
    changes = [eu.one(insert(1)), us.one(insert(1)), eu.truncation(), eu.one(insert(2)), us.one(insert(2))]
    cut = chunks.cut(changes, {}, 1)  # each row a chunk
    packed = bundles.pack(cut.steps, lambda _: 0, 1 << 20)
    assert [bundles.sources_of(step) for step in packed] == [("eu", "us"), ("eu",), ("eu", "us")]


def test_the_facts_of_a_bundle_count_its_rows_on() -> None:
    changes = [Sender(name).transactions([insert(1), insert(2)], [insert(3)]) for name in ("eu", "us")]
    cut = chunks.cut(changes, {}, 1 << 20, TableType.CHANGELOG)
    (bundle,) = bundles.pack(cut.steps, lambda _: 0, 1 << 20)
    assert bundle.facts.row_end.tolist() == [2, 3, 5, 6]
    assert bundle.facts.ordinals().tolist() == [0, 1, 0, 0, 1, 0]
    assert bundle.facts.part(3, 6).row_end.tolist() == [2, 3]
    assert bundles.open_lsn(bundle) == 0
    assert (bundle.rows, bundle.ends) == (6, [3, 6])


def test_an_error_finds_whose_a_key_is() -> None:
    changes = [Sender(name).one(insert(1)) for name in ("eu", "us")]
    (bundle,) = bundles.pack(chunks.cut(changes, {}, 1 << 20).steps, lambda _: 0, 1 << 20)
    keys = Keys(hi=np.array([1, 1], np.uint64), lo=np.array([5, 6], np.uint64))
    done = ChunkDone(keys=keys, whose=np.array([1, 0], np.int32))
    find = bundles.owner_finder(bundle, done)
    assert (find(keys.take(np.array([0]))), find(keys.take(np.array([1])))) == ("us", "eu")
    assert bundles.owner_finder(bundle.chunks[1], ChunkDone())(keys) == "us"
    asked = keys.take(np.array([1, 0, 1], np.int32))
    assert bundles.owners_of(bundle, done, asked) == ["eu", "us", "eu"]
    assert bundles.owners_of(bundle.chunks[1], ChunkDone(), keys) == ["us"] * len(keys)
