from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kuvasz.errors import InternalError
from kuvasz.index.records import ABSENT
from kuvasz.index.run import Run
from kuvasz.index.store import RunStore
from kuvasz.model import UInt64s
from tests.support.keys import keys_of

_U32 = np.uint64(32)


def sorted_run(store: RunStore, numbers: range, file: int = 1) -> Run:
    files = np.full(len(numbers), file, np.uint32)
    return store.sorted(keys_of(numbers), files, np.arange(len(numbers), dtype=np.uint32))


def files_of(run: Run | None) -> list[int]:
    assert run is not None
    return [int(place) for place in run.records[:, 2] >> _U32]


class Bury:
    """Makes the records of a file absent."""

    def __init__(self, file: int) -> None:
        self.file = np.uint64(file)

    def apply(self, records: UInt64s) -> int:
        dead = records[:, 2] >> _U32 == self.file
        records[dead, 2] = np.uint64(ABSENT) << _U32
        return int(dead.sum())


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path, 4)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_of_more_than_a_few_records_goes_to_a_file(store: RunStore, tmp_path: Path) -> None:
    assert sorted_run(store, range(4)).path is None
    assert names(tmp_path) == []
    assert sorted_run(store, range(5)).path == tmp_path / "00000000.run"
    assert store.disk_bytes == 5 * 24


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
        store.sorted(keys_of(numbers), np.zeros(10, np.uint32), np.arange(10, dtype=np.uint32))
    assert names(tmp_path) == []


def test_of_two_runs_the_newer_wins(store: RunStore) -> None:
    merged = store.merged(sorted_run(store, range(6)), sorted_run(store, range(2), file=2), is_oldest=True)
    assert sorted(files_of(merged)) == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("is_oldest", [True, False])
def test_an_absent_key_needs_a_record_only_above_others(store: RunStore, is_oldest: bool) -> None:
    edited = store.edited(sorted_run(store, range(3)), Bury(1), is_oldest=is_oldest)
    assert (edited is None) is is_oldest
    assert is_oldest or files_of(edited) == [ABSENT] * 3


def test_an_edit_that_changes_nothing_gives_the_same_run(store: RunStore) -> None:
    run = sorted_run(store, range(9))
    assert store.edited(run, Bury(7), is_oldest=True) is run


def test_only_what_is_kept_stays_and_strangers_go(store: RunStore, tmp_path: Path) -> None:
    for _ in range(3):
        sorted_run(store, range(9))
    (tmp_path / "ffffffff.run").write_bytes(b"x")
    store.keep_only(["00000001.run"])
    assert names(tmp_path) == ["00000001.run", "ffffffff.run"]
    store.remove_strangers()
    assert names(tmp_path) == ["00000001.run"]
    assert store.disk_bytes == 9 * 24


def test_a_file_that_is_taken_over_is_never_written_again(store: RunStore, tmp_path: Path) -> None:
    run = sorted_run(store, range(9))
    assert run.path is not None
    again = RunStore(tmp_path, 4)
    taken = again.adopt(run.path, 9, run.checksum, verify=True)
    assert files_of(taken) == [1] * 9
    assert sorted_run(again, range(9)).path == tmp_path / "00000001.run"
