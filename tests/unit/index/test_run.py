from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kuvasz.fold.keys import frozen
from kuvasz.index.extents import Extents
from kuvasz.index.run import CHUNK, DamagedRunError, Run, RunWriter
from kuvasz.model import UInt64s

EXTENTS = Extents(np.array([1 << 32], np.uint64), np.array([CHUNK + 3], np.int64))


def records(count: int, start: int = 0) -> UInt64s:
    """Return the records of the keys from `start` on, each in the row of file 1 that is its number."""
    numbers = np.arange(start, start + count, dtype=np.uint64)
    return frozen(np.stack([np.zeros(count, np.uint64), numbers << np.uint64(32) | numbers], axis=1))


def written(path: Path | None, *parts: UInt64s) -> Run | None:
    writer = RunWriter(path, EXTENTS)
    for part in parts:
        writer.write(part)
    return writer.run()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = written(tmp_path / "1.run", records(10), records(5, 10))
    assert made is not None
    return made


@pytest.mark.parametrize("is_filtered", [False, True])
def test_what_is_there_is_found_and_the_rest_stays_pending(run: Run, is_filtered: bool) -> None:
    lo = np.array([3, 99, 14], np.uint64)
    places = np.zeros(3, np.uint64)
    pending = np.arange(3, dtype=np.int64)
    left = run.find(frozen(np.zeros(3, np.uint64)), frozen(lo), pending, places, is_filtered=is_filtered)
    assert left.tolist() == [1]
    assert places.tolist() == [1 << 32 | 3, 0, 1 << 32 | 14]


def test_a_file_has_what_was_written_and_is_opened_again(run: Run) -> None:
    assert run.path is not None
    assert not run.is_synced
    run.sync()
    again = Run.open(run.path, rows=15, extents=1, checksum=run.checksum, verify=True)
    assert again.is_synced
    assert again.records.tolist() == run.records.tolist() == records(15).tolist()
    assert again.extents.bounds.tolist() == EXTENTS.bounds.tolist()
    assert again.file_bytes == run.path.stat().st_size
    assert again.heap_bytes < run.records.nbytes, "the records are not on the heap"


def test_memory_has_no_file_and_its_records_on_the_heap() -> None:
    run = written(None, records(3), records(2, 3))
    assert run is not None
    assert (run.path, run.checksum, len(run)) == (None, "", 5)
    assert run.heap_bytes > run.records.nbytes


def test_of_nothing_there_is_no_run_and_no_file(tmp_path: Path) -> None:
    assert written(tmp_path / "1.run", records(0)) is None
    assert written(None) is None
    assert list(tmp_path.iterdir()) == []


def test_who_gives_up_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "1.run", EXTENTS)
    writer.write(records(3))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_slices_are_whole_and_in_order() -> None:
    run = Run(records(CHUNK + 3), EXTENTS)
    assert [len(part) for part in run.chunks()] == [CHUNK, 3]


@pytest.mark.parametrize("verify", [True, False])
def test_a_file_that_is_missing_or_has_another_size_is_refused(run: Run, verify: bool) -> None:
    assert run.path is not None
    with pytest.raises(DamagedRunError, match=r"^1\.run has 256 bytes, not 272$"):
        Run.open(run.path, rows=16, extents=1, checksum=run.checksum, verify=verify)
    with pytest.raises(DamagedRunError, match=r"^1\.run has 256 bytes, not 240$"):
        Run.open(run.path, rows=15, extents=0, checksum=run.checksum, verify=verify)
    with pytest.raises(DamagedRunError, match=r"^1\.run has 256 bytes, not 16$"):
        Run.open(run.path, rows=0, extents=1, checksum=run.checksum, verify=verify)
    run.path.unlink()
    with pytest.raises(DamagedRunError, match=r"^1\.run is missing$"):
        Run.open(run.path, rows=15, extents=1, checksum=run.checksum, verify=verify)


@pytest.mark.parametrize("at", [100, 250])
def test_a_file_with_another_bit_is_refused_if_it_is_read(run: Run, at: int) -> None:
    assert run.path is not None
    data = bytearray(run.path.read_bytes())
    data[at] ^= 1
    run.path.write_bytes(data)
    with pytest.raises(DamagedRunError, match=r"^1\.run has another checksum$"):
        Run.open(run.path, rows=15, extents=1, checksum=run.checksum, verify=True)
    assert len(Run.open(run.path, rows=15, extents=1, checksum=run.checksum, verify=False)) == 15
