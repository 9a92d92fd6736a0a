"""Keys that wait on disk come back as they were, in rows' order or sorted."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from kuvasz.errors import InternalError, LakeError
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk
from kuvasz.lake.files.key_file import KeyFiles

PATH = "s3://lake/items/data/kvsz-1-0.parquet"
KEYS = Keys(hi=np.array([3, 1, 2], np.uint64), lo=np.array([7, 8, 9], np.uint64))


def test_in_the_order_of_rows(tmp_path: Path) -> None:
    files = KeyFiles(folder=tmp_path, is_sorted=False)
    files.write(PATH, KEYS)
    found = files.keys(PATH)
    assert found.hi.tolist() == KEYS.hi.tolist()
    assert found.lo.tolist() == KEYS.lo.tolist()


def test_sorted(tmp_path: Path) -> None:
    files = KeyFiles(folder=tmp_path, is_sorted=True)
    files.write(PATH, KEYS)
    assert files.records(PATH).tolist() == bulk.of_one_file(KEYS).tolist()
    assert files.ascending(PATH).hi.tolist() == [1, 2, 3]
    assert files.ascending(PATH).lo.tolist() == [8, 9, 7]


def test_rows_of_some_keys_are_left_out(tmp_path: Path) -> None:
    files = KeyFiles(folder=tmp_path, is_sorted=True)
    files.write(PATH, KEYS)
    unknown = Keys(hi=np.array([1, 2], np.uint64), lo=np.array([9, 8], np.uint64))
    assert files.leave_out(PATH, unknown).tolist() == []
    assert files.leave_out(PATH, Keys.concat([KEYS.take(slice(0, 2)), unknown])).tolist() == [0, 1]
    assert files.ascending(PATH).hi.tolist() == [2]
    assert files.leave_out(PATH, KEYS).tolist() == [2]
    assert len(files.ascending(PATH)) == 0


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="twice"):
        KeyFiles(folder=tmp_path, is_sorted=True).write(PATH, KEYS.take(np.array([0, 1, 0], np.int32)))


def test_no_room_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=f"cannot be kept below {tmp_path}"):
        KeyFiles(folder=tmp_path / "gone", is_sorted=False).write(PATH, KEYS)


def test_none_at_all(tmp_path: Path) -> None:
    none = KEYS.take(np.array([], np.int32))
    for is_sorted in (True, False):
        KeyFiles(folder=tmp_path, is_sorted=is_sorted).write(PATH, none)
        found = KeyFiles(folder=tmp_path, is_sorted=is_sorted)
        assert len(found.ascending(PATH) if is_sorted else found.keys(PATH)) == 0


def test_many_threads_may_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's own format is parsed, and up to Python 3.12 two threads that parse at a time end in a SystemError."""

    def refuse(*_: object, **__: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(ast, "parse", refuse)
    for is_sorted in (True, False):
        files = KeyFiles(folder=tmp_path, is_sorted=is_sorted)
        files.write(PATH, KEYS)
        assert len(files.ascending(PATH) if is_sorted else files.keys(PATH)) == len(KEYS)
