"""Tasks that run on executors, run here."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

from kuvasz.fold.keys import hash_keys
from kuvasz.lake.executors import tasks
from kuvasz.lake.executors.tasks import CopyTask, ReadKeys, slim_worker
from kuvasz.lake.files import data_file
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format.layout import Layout, Term
from kuvasz.lake.format.schema import Field, arrow_field
from kuvasz.model import LakeType, ValueType
from kuvasz.modes.shape import Shape
from tests.support.shapes import APPEND, KEYLESS, shape
from tests.support.wires import copy_line


@pytest.mark.parametrize("to", [APPEND, shape(KEYLESS)], ids=["key", "no key"])
def test_a_copy_is_divided_with_and_without_a_key(tmp_path: Path, to: Shape) -> None:
    task = CopyTask(
        request=None, shape=to, bounded=(), properties={}, path=f"file://{tmp_path}/f{{}}.parquet", chunk_bytes=100,
        lsn=1, file_bytes=100, layout=Layout(partition=(Term(transform="identity", column="n", width=0),)),
    )  # fmt: skip
    lines = b"".join(copy_line([str(number).encode(), str(number % 2).encode(), b"x"]) for number in range(5))
    done = task.copy([(lines, None)])
    assert done.error is None
    assert sorted(file.rows for file in done.files) == [2, 3]
    assert [len(keys) for keys in done.keys] == ([file.rows for file in done.files] if to.key else [0, 0])


def test_keys_that_cannot_be_kept_leave_no_data_file(tmp_path: Path) -> None:
    task = CopyTask(
        request=None, shape=APPEND, bounded=(), properties={}, path=f"file://{tmp_path}/f{{}}.parquet", chunk_bytes=9,
        lsn=1, file_bytes=1, layout=Layout(), key_files=KeyFiles(folder=tmp_path / "keys", is_sorted=True),
    )  # fmt: skip
    chunks = [(copy_line([str(number).encode(), b"1", b"x"]), None) for number in range(2)]
    assert "make room" in str(task.copy(chunks).error)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "keys").mkdir()
    done = task.copy(chunks)
    assert done.keys == ()
    assert task.key_files is not None
    assert [len(task.key_files.records(file.path)) for file in done.files] == [1, 1]


def field(number: int, name: str, kind: LakeType, default: object = None) -> pa.Field:
    return arrow_field(
        Field(field_id=number, name=name, type=ValueType(kind=kind), required=False, initial_default=default)
    )


def test_keys_are_those_of_the_rows_as_the_table_has_them_now(tmp_path: Path) -> None:
    """A file from before has narrower types, and lacks a column whose default its rows have."""
    before = pa.schema([field(1, "n", LakeType.INT)])
    path = f"file://{tmp_path}/x.parquet"
    with data_file.writing({}, path, before) as writer:
        writer.write(pa.table([pa.array([1, 2], pa.int32())], schema=before))
        writer.close()
    now = pa.schema([field(1, "n", LakeType.LONG), field(2, "kind", LakeType.STRING, "some")])
    found = ReadKeys(properties={}, seed=bytes(16), fields=now, has_sid=False).read(path)
    expected = hash_keys([pa.array([1, 2], pa.int64()), pa.array(["some"] * 2)], sid=None, seed=bytes(16))
    assert (found.hi.tolist(), found.lo.tolist()) == (expected.hi.tolist(), expected.lo.tolist())


def test_a_worker_freezes_its_modules_once_and_looks_at_no_object_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task begins with it, and to count what is frozen is to go through all of it."""
    done: list[str] = []
    tasks._freeze.cache_clear()
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: done.append("counted") or len(done))
    for _ in range(3):
        slim_worker()
    assert done == ["frozen"]
