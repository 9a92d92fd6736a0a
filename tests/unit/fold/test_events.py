"""Several rows of one key: the newest counts, and versions have to fit together. The oracle goes row by row."""

from __future__ import annotations

import collections
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.fold.difference import Listing
from kuvasz.fold.events import NEVER, Events, Fault, faults, newest
from kuvasz.fold.keys import Keys

FOREVER = 100
KEYS = st.integers(0, 3)
#: key, first, second, is_end
EVENTS = st.lists(st.tuples(KEYS, st.integers(0, 4), st.integers(-1, 2), st.booleans()), max_size=12)
VERSIONS = st.lists(
    st.tuples(KEYS, st.integers(0, 5), st.one_of(st.integers(0, 6), st.just(FOREVER)), st.booleans()), max_size=10
)


def events(rows: list[tuple[int, int, int, bool]]) -> Events:
    keys = np.array([row[0] for row in rows], np.uint64)
    number = np.arange(len(rows), dtype=np.uint32)
    prints = Keys(hi=number.astype(np.uint64), lo=number.astype(np.uint64))
    return Events(
        rows=Listing(keys=Keys(hi=keys, lo=keys * np.uint64(2**63)), prints=prints, files=number, places=number),
        first=np.array([row[1] for row in rows], np.int64), second=np.array([row[2] for row in rows], np.int64),
        is_end=np.array([row[3] for row in rows], np.bool_),
    )  # fmt: skip


@given(EVENTS)
def test_the_newest_event_of_each_key_counts(rows: list[tuple[int, int, int, bool]]) -> None:
    last, doubled = newest(events(rows))
    of: dict[int, list[tuple[int, int, int, bool]]] = collections.defaultdict(list)
    for number, (key, first, second, is_end) in enumerate(rows):
        of[key].append((first, second, number, is_end))
    times = {key: [entry[:2] for entry in mine] for key, mine in of.items()}
    assert doubled.hi.tolist() == sorted(key for key, mine in times.items() if len(set(mine)) < len(mine))
    clear = {key: max(mine) for key, mine in of.items() if times[key].count(max(mine)[:2]) == 1}
    found = dict(zip(last.keys.hi.tolist(), last.files.tolist(), strict=True))
    assert {key: found[key] for key in found if key in clear} == {
        key: number for key, (_, _, number, is_end) in clear.items() if not is_end
    }


@given(EVENTS, st.tuples(st.integers(0, 4), st.integers(-1, 2)))
def test_what_was_before_an_event_is_left_out(rows: list[tuple[int, int, int, bool]], since: tuple[int, int]) -> None:
    kept = events(rows).after(since).rows.files.tolist()
    assert kept == [number for number, row in enumerate(rows) if (row[1], row[2]) > since]
    assert len(events(rows).after(NEVER)) == len(rows)


def wrong(versions: list[tuple[int, int, bool]]) -> bool:
    """Whether versions (start, end, deleted) of one key do not fit together."""
    ordered = sorted(versions)
    if any(start >= end or (deleted and end == FOREVER) for start, end, deleted in ordered):
        return True
    for (_, end, deleted), (start, _, _) in itertools.pairwise(ordered):
        if end > start or (end < start and not deleted):
            return True
    return not ordered[-1][2] and ordered[-1][1] != FOREVER


@given(VERSIONS)
def test_versions_fit_together(rows: list[tuple[int, int, int, bool]]) -> None:
    of = collections.defaultdict(list)
    for key, start, end, deleted in rows:
        of[key].append((start, end, deleted))
    keys, _ = faults(events(rows), FOREVER)
    assert keys.hi.tolist() == sorted(key for key, versions in of.items() if wrong(versions))


def test_what_is_wrong_is_named() -> None:
    versions = [
        (0, 0, 5, False), (0, 4, FOREVER, False),  # overlap
        (1, 0, 3, False), (1, 4, FOREVER, False),  # gap
        (2, 0, 3, True), (2, 4, FOREVER, False),  # deleted, and there again later
        (3, 0, 3, False),  # ended, and nothing follows
        (4, 3, 3, True),  # empty
        (5, 0, FOREVER, True),  # deleted, and open
    ]  # fmt: skip
    keys, kinds = faults(events(versions), FOREVER)
    found = dict(zip(keys.hi.tolist(), [Fault(kind) for kind in kinds.tolist()], strict=True))
    assert found == {0: Fault.OVERLAP, 1: Fault.GAP, 3: Fault.GAP, 4: Fault.BROKEN, 5: Fault.BROKEN}
