from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kuvasz.errors import InternalError
from kuvasz.fold.keys import frozen
from kuvasz.index import bulk, extents
from kuvasz.index.edit import Move
from kuvasz.index.manifest import RunEntry
from kuvasz.index.records import ABSENT
from kuvasz.index.run import Run
from kuvasz.index.store import RunStore
from kuvasz.model import UInt64s
from tests.support.keys import keys_of

_U32 = np.uint64(32)


def sorted_run(store: RunStore, numbers: range, file: int = 1) -> Run:
    (run,) = store.sorted(keys_of(numbers), rows_of(file, len(numbers)))
    return run


def rows_of(file: int, count: int) -> UInt64s:
    return np.uint64(file) << _U32 | np.arange(count, dtype=np.uint64)


def files_of(run: Run | None) -> list[int]:
    assert run is not None
    return [int(place) for place in run.extents.places(run.records) >> _U32]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path, 4)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_of_more_than_a_few_records_goes_to_a_file(store: RunStore, tmp_path: Path) -> None:
    assert sorted_run(store, range(4)).path is None
    assert names(tmp_path) == []
    assert sorted_run(store, range(5)).path == tmp_path / "00000000.run"
    assert store.disk_bytes == (5 + 1) * 16, "the records, and the extent of the file"


def test_without_a_folder_all_runs_are_in_memory() -> None:
    store = RunStore(None, 4)
    run = sorted_run(store, range(50))
    assert run.path is store.stored(run).path is None
    store.keep_only([])
    store.remove_strangers()
    assert store.disk_bytes == 0


def test_a_key_twice_is_refused_and_leaves_no_file(store: RunStore, tmp_path: Path) -> None:
    numbers = [*range(9), 3]
    with pytest.raises(InternalError, match="a key occurs twice"):
        store.sorted(keys_of(numbers), rows_of(0, 10))
    assert names(tmp_path) == []


def test_of_two_runs_the_newer_wins(store: RunStore) -> None:
    merged = store.merged(sorted_run(store, range(6)), sorted_run(store, range(2), file=2), is_oldest=True)
    assert sorted(files_of(merged)) == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("is_oldest", [True, False])
def test_an_absent_key_needs_a_record_only_above_others(store: RunStore, is_oldest: bool) -> None:
    edited = store.edited(sorted_run(store, range(3)), Move.drop([1]), is_oldest=is_oldest)
    assert [files_of(run) for run in edited] == ([] if is_oldest else [[ABSENT] * 3])


def test_an_edit_that_changes_nothing_gives_the_same_run(store: RunStore) -> None:
    run = sorted_run(store, range(9))
    assert store.edited(run, Move.drop([7]), is_oldest=True) == [run]


def test_of_more_rows_than_codes_there_are_several_runs(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "CAPACITY", 8)
    runs = store.sorted(keys_of(range(10)), np.concatenate([rows_of(1, 5), rows_of(2, 5)]))
    assert [files_of(run) for run in runs] == [[1] * 5, [2] * 5]
    assert not store.fits(*runs)
    files = [(file, bulk.of_one_file(keys_of(range(4 * file, 4 * file + 4)))) for file in range(3)]
    assert [sorted(files_of(run)) for run in store.loaded(files)] == [[0] * 4 + [1] * 4, [2] * 4]


def test_an_edit_that_makes_more_rows_than_codes_makes_several_runs(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "CAPACITY", 8)
    (run,) = store.sorted(keys_of(range(6)), np.concatenate([rows_of(1, 2), rows_of(2, 2), rows_of(3, 2)]))
    apart = Move.remap({1: (7, np.array([0, 5], np.int32)), 2: (8, np.array([3, 9], np.int32))})
    first, second = store.edited(run, apart, is_oldest=True)
    assert sorted(first.extents.places(first.records).tolist()) == [*rows_of(3, 2), 7 << 32, 7 << 32 | 5]
    assert sorted(second.extents.places(second.records).tolist()) == [8 << 32 | 3, 8 << 32 | 9]
    # Above an older run one of them says that keys are absent.
    gone = Move.remap({3: (7, np.array([-1, 5], np.int32)), 2: (8, np.array([3, 9], np.int32))})
    made = store.edited(run, gone, is_oldest=False)
    assert [sorted(files_of(one)) for one in made] == [[1, 1, 7, ABSENT], [8, 8]]


def test_two_runs_about_the_same_rows_are_merged_though_there_are_no_codes_for_both(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extents, "CAPACITY", 8)
    older, newer = sorted_run(store, range(6)), sorted_run(store, range(3, 9))
    assert older.path is not None
    merged = store.merged(older, newer, is_oldest=True)
    assert merged is not None
    assert merged.extents.rows == 6
    keys, places = keys_of(range(9)), np.zeros(9, np.uint64)
    assert not len(merged.find(frozen(keys.hi), frozen(keys.lo), np.arange(9), places, is_filtered=False))
    assert places.tolist() == [*rows_of(1, 3), *rows_of(1, 6)]


def test_only_what_is_kept_stays_and_strangers_go(store: RunStore, tmp_path: Path) -> None:
    for _ in range(3):
        sorted_run(store, range(9))
    (tmp_path / "ffffffff.run").write_bytes(b"x")
    store.keep_only(["00000001.run"])
    assert names(tmp_path) == ["00000001.run", "ffffffff.run"]
    store.remove_strangers()
    assert names(tmp_path) == ["00000001.run"]
    assert store.disk_bytes == (9 + 1) * 16


def test_a_file_that_is_taken_over_is_never_written_again(store: RunStore, tmp_path: Path) -> None:
    run = sorted_run(store, range(9))
    assert run.path is not None
    again = RunStore(tmp_path, 4)
    entry = RunEntry(name=run.path.name, rows=9, extents=1, checksum=run.checksum)
    taken = again.adopt(run.path, entry, verify=True)
    assert files_of(taken) == [1] * 9
    assert sorted_run(again, range(9)).path == tmp_path / "00000001.run"
