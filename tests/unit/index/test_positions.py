from __future__ import annotations

import resource
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kuvasz.errors import InternalError
from kuvasz.fold.keys import Keys
from kuvasz.index import extents
from kuvasz.index.bulk import of_one_file
from kuvasz.index.positions import ABSENT, PositionIndex
from tests.support.examples import examples
from tests.support.keys import ALL, keys_of, places

FILES = range(6)


class AgainstDict(RuleBasedStateMachine):
    """The index and a dict of number -> place, under every operation."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.now: dict[int, tuple[int, int]] = {}
        self.marked: dict[int, tuple[int, int]] = {}
        self.saved: tuple[dict, dict | None] = {}, None
        self.count = 0

    @initialize(
        memory=st.sampled_from([1, 4, 16, 1000]),
        is_in_memory=st.booleans(),
        capacity=st.sampled_from([21, 64, ABSENT]),
    )
    def begin(self, memory, is_in_memory, capacity):
        extents.CAPACITY = capacity
        self.memory = memory
        self.is_in_memory = is_in_memory
        self.index = (
            PositionIndex.in_memory() if is_in_memory else PositionIndex.open(self.folder, memory_entries=memory)
        )

    def teardown(self):
        extents.CAPACITY = ABSENT
        shutil.rmtree(self.folder)

    @rule(numbers=st.lists(st.sampled_from(ALL), unique=True), data=st.data())
    def insert(self, numbers, data):
        if data.draw(st.booleans()):
            file = data.draw(st.sampled_from(FILES))
            files = [file] * len(numbers)
        else:
            files = data.draw(st.lists(st.sampled_from(FILES), min_size=len(numbers), max_size=len(numbers)))
            file = np.array(files, np.uint32)
        positions = data.draw(st.lists(st.integers(0, 9), min_size=len(numbers), max_size=len(numbers)))
        self.index.insert(keys_of(numbers), file, np.array(positions, np.uint32))
        self.now.update(zip(numbers, zip(files, positions, strict=True), strict=True))

    @rule(numbers=st.lists(st.sampled_from(ALL), unique=True), data=st.data())
    def load(self, numbers, data):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(numbers)), max_size=3)))
        parts = [numbers[a:b] for a, b in zip([0, *cuts], [*cuts, len(numbers)], strict=True)]
        files = data.draw(st.permutations(FILES))[: len(parts)]
        self.index.load([(file, of_one_file(keys_of(part))) for file, part in zip(files, parts, strict=True)])
        for file, part in zip(files, parts, strict=True):
            self.now.update({number: (file, position) for position, number in enumerate(part)})

    @rule(file=st.sampled_from(FILES))
    def insert_all(self, file):
        """Make one long oldest run, so that the small ones above it stay apart from it."""
        self.index.insert(keys_of(ALL), file, np.array(ALL, np.uint32) % 10)
        self.now.update({number: (file, number % 10) for number in ALL})

    @rule()
    def mark(self):
        self.index.mark()
        self.marked = dict(self.now)

    @rule()
    def rollback(self):
        self.index.rollback()
        self.now = dict(self.marked)

    @rule()
    def checkpoint(self):
        self.count += 1
        self.index.checkpoint({"snapshot": self.count, "files": ["ä"]})
        self.marked = dict(self.now)
        self.saved = dict(self.now), {"snapshot": self.count, "files": ["ä"]}

    @rule()
    def clear(self):
        self.index.clear()
        self.now, self.marked, self.saved = {}, {}, ({}, None)

    @precondition(lambda self: not self.is_in_memory)
    @rule(is_closed=st.booleans(), verify=st.booleans())
    def reopen(self, is_closed, verify):
        if is_closed:
            self.index.close()
        self.index = PositionIndex.open(self.folder, memory_entries=self.memory, verify=verify)
        self.now, self.marked = dict(self.saved[0]), dict(self.saved[0])
        assert self.index.tag == self.saved[1]

    @precondition(lambda self: not self.is_in_memory)
    @rule(damage=st.integers(0, 10_000), is_cut=st.booleans())
    def damage(self, damage, is_cut):
        self.index.close()
        files = sorted(self.folder.iterdir())
        if files:
            victim = files[damage % len(files)]
            data = bytearray(victim.read_bytes())
            data[damage % len(data)] ^= 1 << damage % 8
            victim.write_bytes(data[: damage % len(data)] if is_cut else data)
        self.index = PositionIndex.open(self.folder, memory_entries=self.memory)
        self.now, self.marked, self.saved = {}, {}, ({}, None)
        assert self.index.tag is None
        assert list(self.folder.iterdir()) == []

    @rule(
        moves=st.dictionaries(
            st.sampled_from(FILES), st.tuples(st.sampled_from(FILES), st.lists(st.integers(-1, 20), max_size=10))
        ),
        dtype=st.sampled_from([np.int32, np.uint32]),
    )
    def remap(self, moves, dtype):
        self.index.remap(
            {old: (new, np.array(positions, np.int32).view(dtype)) for old, (new, positions) in moves.items()}
        )
        after = {}
        for number, (file, position) in self.now.items():
            if file not in moves:
                after[number] = (file, position)
                continue
            new, positions = moves[file]
            if position < len(positions) and positions[position] >= 0:
                after[number] = (new, positions[position])
        self.now = after

    @rule(files=st.sets(st.sampled_from(FILES)))
    def drop_files(self, files):
        self.index.drop_files(files)
        self.now = {number: place for number, place in self.now.items() if place[0] not in files}

    @rule(dead=st.none() | st.dictionaries(st.sampled_from(FILES), st.lists(st.booleans(), max_size=10)))
    def merge(self, dead):
        if dead is not None and self.now != self.marked:
            dead = {}  # what is dead must be dead in the marked state too
        self.index.merge(None if dead is None else lambda f: np.array(dead[f], bool) if f in dead else None)
        if not dead:
            return
        alive = {
            number: (file, position)
            for number, (file, position) in self.now.items()
            if not any(dead.get(file, [])[position : position + 1])
        }
        # An index that is not as it was marked may keep what is dead: it is what the caller asks about anyway.
        known = places(self.index, ALL)
        assert alive.items() <= known.items() <= self.now.items()
        if not self.unmarked_runs():
            assert known == alive
        self.now = known
        self.index.rollback()
        self.marked = places(self.index, ALL)
        self.now = dict(self.marked)

    def unmarked_runs(self):
        return self.index._now != self.index._marked

    @invariant()
    def same(self):
        if hasattr(self, "index"):
            assert places(self.index, ALL) == self.now

    @invariant()
    def bounded(self):
        if hasattr(self, "index"):
            runs = self.index._now.runs
            assert sum(len(run) for run in runs if run.path is None) <= max(self.memory, 1) or self.is_in_memory
            assert {path.name for path in self.folder.glob("*.run")} == set(self.index._store._files)


TestAgainstDict = AgainstDict.TestCase
TestAgainstDict.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)


def numbered(count, start=0):
    return Keys(hi=np.full(count, 7, np.uint64), lo=np.arange(start, start + count, dtype=np.uint64))


def hashed(count, seed=1):
    rng = np.random.default_rng(seed)
    hi, lo = rng.integers(0, 1 << 64, (2, count), np.uint64)
    return Keys(hi=hi, lo=lo)


@pytest.mark.parametrize("make", [numbered, hashed])
def test_many_keys_are_found_in_many_runs(tmp_path, make):
    index = PositionIndex.open(tmp_path, memory_entries=20_000)
    keys = make(200_000)
    expected = np.zeros(len(keys), np.uint32)
    rng = np.random.default_rng(2)
    for file in range(60):
        rows = rng.choice(len(keys), rng.integers(1, 15_000), replace=False)
        index.insert(keys.take(rows), file + 1, rows.astype(np.uint32))
        expected[rows] = file + 1
        index.mark()
    file, position = index.lookup(keys)
    known = expected > 0
    assert (file[known] == expected[known]).all()
    assert (position[known] == np.flatnonzero(known)).all()
    assert (file[~known] == ABSENT).all()
    assert len(index._now.runs) <= 8
    index.checkpoint({"snapshot": 1})
    index.merge()
    assert index.entries == known.sum()
    again = PositionIndex.open(tmp_path)
    assert (again.lookup(keys)[0] == file).all()


def test_neighbours_of_known_keys_are_unknown(tmp_path):
    index = PositionIndex.in_memory()
    known = numbered(10_000)
    index.insert(Keys(hi=known.hi, lo=known.lo * np.uint64(3)), 1, known.lo.astype(np.uint32))
    for shift in (1, 2):
        file, _ = index.lookup(Keys(hi=known.hi, lo=known.lo * np.uint64(3) + np.uint64(shift)))
        assert (file == ABSENT).all()
    for other in (6, 8):
        file, _ = index.lookup(Keys(hi=np.full(10_000, other, np.uint64), lo=known.lo * np.uint64(3)))
        assert (file == ABSENT).all()


def test_a_dropped_row_stays_unknown_through_merges_above_an_older_record():
    index = PositionIndex.in_memory()
    index.insert(keys_of(ALL), 1, np.array(ALL, np.uint32))
    index.mark()
    index.insert(keys_of(range(5)), 2, np.arange(5, dtype=np.uint32))
    index.remap({2: (3, np.full(5, -1, np.int32))})
    index.insert(keys_of(range(10, 13)), 4, np.arange(3, dtype=np.uint32))
    assert [len(run) for run in index._now.runs] == [64, 8]
    assert sorted(places(index, ALL)) == list(range(5, 64))
    index.mark()
    index.merge()
    assert index.entries == 59
    assert sorted(places(index, ALL)) == list(range(5, 64))


def test_skewed_keys_are_found():
    # Guessing between fences goes wrong here; the walk must still arrive.
    lo = np.unique(np.concatenate([np.uint64(1) << np.arange(64, dtype=np.uint64), np.arange(500, dtype=np.uint64)]))
    keys = Keys(hi=np.zeros(len(lo), np.uint64), lo=lo)
    index = PositionIndex.in_memory()
    index.insert(keys, 1, np.arange(len(lo), dtype=np.uint32))
    assert index.lookup(keys)[1].tolist() == list(range(len(lo)))


def test_runs_and_heap_stay_few(tmp_path):
    index = PositionIndex.open(tmp_path, memory_entries=1000)
    for round_ in range(200):
        index.insert(hashed(500, seed=round_), round_, np.arange(500, dtype=np.uint32))
        index.mark()
        index.lookup(hashed(10))
        assert len(index._now.runs) <= 7
    assert index.entries == 100_000
    assert index.heap_bytes <= 1000 * 16 + 100_000
    assert index.disk_bytes <= 100_000 * 16 + 200 * 16


def test_a_key_twice_in_one_insert_is_refused():
    index = PositionIndex.in_memory()
    with pytest.raises(InternalError, match=r"^a key occurs twice among the 3 that are to be inserted\n"):
        index.insert(keys_of([3, 4, 3]), 1, np.arange(3, dtype=np.uint32))
    assert places(index, ALL) == {}


def test_wrong_lengths_and_numbers_are_refused():
    index = PositionIndex.in_memory()
    with pytest.raises(InternalError, match=r"^2 keys with 1 files and 1 positions\n"):
        index.insert(keys_of([3, 4]), 1, np.arange(1, dtype=np.uint32))
    for file, row in ((ABSENT, 0), (0, ABSENT)):
        message = rf"^a key cannot be inserted into file {file}, row {row}: 4294967295 stands for none\n"
        with pytest.raises(InternalError, match=message):
            index.insert(keys_of([3]), np.array([file], np.uint32), np.array([row], np.uint32))
    with pytest.raises(InternalError, match=r"^file numbers go from 0 to 4294967294, not -1 to -1\n"):
        index.insert(keys_of([3]), -1, np.arange(1, dtype=np.uint32))


@pytest.fixture
def small_disk():
    """Let no file grow beyond so many bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("doing", ["insert", "mark", "checkpoint", "merge", "remap"])
def test_a_full_disk_changes_nothing(tmp_path, small_disk, doing):
    index = PositionIndex.open(tmp_path, memory_entries=300)
    index.insert(numbered(1000), 1, np.arange(1000, dtype=np.uint32))
    index.checkpoint({"snapshot": 1})
    index.insert(numbered(200, start=5000), 2, np.arange(200, dtype=np.uint32))
    files = sorted(tmp_path.iterdir())
    small_disk(2000)
    with pytest.raises(OSError, match="File too large"):
        {
            "insert": lambda: index.insert(numbered(900, start=200), 3, np.arange(900, dtype=np.uint32)),
            "mark": lambda: [
                index.insert(numbered(1, start=at), 9, np.zeros(1, np.uint32)) or index.mark()
                for at in range(6000, 7000)
            ],
            "checkpoint": lambda: index.checkpoint({"snapshot": 2}),
            "merge": lambda: [index.mark(), index.merge(lambda file: np.ones(500, bool))],
            "remap": lambda: index.remap({1: (4, np.arange(1000, dtype=np.int32))}),
        }[doing]()
    small_disk(None)
    assert sorted(tmp_path.iterdir()) == files
    assert index.tag == {"snapshot": 1}
    file, position = index.lookup(numbered(1000))
    assert file.tolist() == [1] * 1000
    assert position.tolist() == list(range(1000))
    assert index.lookup(numbered(200, start=5000))[0].tolist() == [2] * 200
    again = PositionIndex.open(tmp_path)
    assert again.tag == {"snapshot": 1}
    assert again.lookup(numbered(1000))[0].tolist() == [1] * 1000
    assert again.lookup(numbered(200, start=5000))[0].tolist() == [ABSENT] * 200


def test_an_unverified_open_still_sees_a_missing_or_short_file(tmp_path):
    for spoil in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-16])):
        index = PositionIndex.open(tmp_path)
        index.insert(numbered(10), 1, np.arange(10, dtype=np.uint32))
        index.checkpoint({})
        spoil(next(tmp_path.glob("*.run")))
        again = PositionIndex.open(tmp_path, verify=False)
        assert again.tag is None
        assert again.entries == 0


def test_whole_files_are_left_out_by_a_merge(tmp_path):
    index = PositionIndex.open(tmp_path, memory_entries=100)
    index.insert(numbered(500), 1, np.arange(500, dtype=np.uint32))
    index.insert(numbered(250), 2, np.arange(250, dtype=np.uint32))
    index.mark()
    index.drop_files([3])
    index.merge(lambda file: file == 1 or None)
    file, _ = index.lookup(numbered(500))
    assert file.tolist() == [2] * 250 + [ABSENT] * 250
    assert index.entries == 250
    index.checkpoint({})
    assert PositionIndex.open(tmp_path).entries == 250


def test_dead_rows_are_left_out_by_a_merge(tmp_path):
    index = PositionIndex.open(tmp_path, memory_entries=100)
    index.insert(numbered(500), 1, np.arange(500, dtype=np.uint32))
    index.insert(numbered(250), 2, np.arange(250, dtype=np.uint32))
    index.mark()
    asked = []

    def is_dead(file):
        asked.append(file)
        return np.arange(500) % 2 == 0 if file == 1 else None

    index.merge(is_dead)
    assert sorted(asked) == [1, 2] or asked == [1, 2]
    file, _ = index.lookup(numbered(500))
    assert file[:250].tolist() == [2] * 250
    assert file[250:].tolist() == [ABSENT, 1] * 125
    assert index.entries == 375
