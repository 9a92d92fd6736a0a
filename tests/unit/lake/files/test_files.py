from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from kuvasz.lake.files import files
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.files import Changeset, DeleteFile, FileEntry, FileTable, Sent
from kuvasz.lake.files.live_file import LiveFile

named = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=60)


def _delete(changeset: Changeset, rows: list[tuple[int, int]]) -> None:
    numbers = np.array([file for file, _ in rows], np.uint32)
    changeset.delete(numbers, np.array([row for _, row in rows], np.uint32))


def _deleted(changeset: Changeset) -> set[tuple[int, int]]:
    return {(file, row) for file, rows in changeset.deletes.items() for row in rows}


@settings(deadline=None)  # a busy machine is no fault of ours
@given(named, named, named)
def test_deletes_gather(first: list, second: list, third: list) -> None:
    one, other = Changeset(), Changeset()
    _delete(one, first)
    _delete(one, second)
    _delete(other, third)
    assert _deleted(one) == {*first, *second}
    one.merge(other)
    assert _deleted(one) == {*first, *second, *third}
    assert _deleted(other) == set(third)
    assert all(one.deletes.values()), "no file without rows"


def test_merging_takes_files_over() -> None:
    one, other = Changeset(), Changeset()
    one.add(1, DataFile(path="a", rows=1, size=1, json=""), "eu")
    other.add(2, DataFile(path="b", rows=1, size=1, json=""), None)
    other.dropped.add(7)
    one.merge(other)
    assert sorted(one.paths()) == ["a", "b"]
    assert one.dropped == {7}


def test_numbers_are_never_given_twice() -> None:
    table = FileTable({})
    table.add(FileEntry(number=5, path="a", rows=1, sid=None))
    assert table.reserve() == 6
    table.remove(5)
    assert (table.reserve(), len(table), table.find("a"), 5 in table) == (7, 0, None, False)


def test_what_a_commit_changed_is_taken_over() -> None:
    table = FileTable({})
    of_b, of_all = json.dumps({"referenced-data-file": "b"}), json.dumps({"record-count": 1})
    table.add(FileEntry(number=1, path="a", rows=9, sid=None))
    table.add(FileEntry(number=2, path="b", rows=9, sid=None, dead=BitMap64([0]), delete=of_b, others=(of_all, of_b)))
    changeset = Changeset()
    changeset.dropped.add(1)
    changeset.add(3, DataFile(path="c", rows=4, size=5, json=""), "eu")
    sent = Sent(
        commit_id="", commit=TableCommit(snapshot_id=None, properties={}, summary={}),
        deletes={2: BitMap64([7]), 3: BitMap64([1])},
        delete_files=[DeleteFile(number=number, json=f"new {number}", path="") for number in (2, 3)],
    )  # fmt: skip
    table.accept(changeset, sent, 42)
    assert 1 not in table
    assert (list(table[2].dead), table[2].all_deletes) == ([0, 7], ("new 2", of_all))
    assert (table[3].path, table[3].sid, table[3].sequence, list(table[3].dead)) == ("c", "eu", 42, [1])


@pytest.mark.parametrize("write", [files.write_vectors, files.write_position_deletes])
def test_delete_files_are_read_back(tmp_path: Path, write: object) -> None:
    (tmp_path / "data").mkdir()
    entries = [FileEntry(number=n, path=f"file://{tmp_path}/data/{n}.parquet", rows=1000, sid=None) for n in (1, 2)]
    dead = [BitMap64([0, 5, 999]), BitMap64(range(100))]
    written = write({}, f"file://{tmp_path}", list(zip(entries, dead, strict=True)))
    table = FileTable({})
    for entry, one in zip(entries, written, strict=True):
        assert one.number == entry.number
        entry.delete = one.json
        table.add(entry)
    assert [table.dead(1), table.dead(2)] == dead
    table.add(FileEntry(number=3, path="c", rows=1, sid=None))
    assert table.dead(3) == BitMap64()


@pytest.mark.parametrize(
    ("lower", "upper", "sid"),
    [("6575", "6575", "eu"), ("6575", "7573", None), (None, None, None)],
)
def test_a_file_of_one_source_is_known_by_its_bounds(lower: str | None, upper: str | None, sid: str | None) -> None:
    def bounds(value: str | None) -> dict:
        return {"keys": [1], "values": [value]} if value else {"keys": [], "values": []}

    sizes = {"record-count": 3, "file-size-in-bytes": 70}
    data = {"file-path": "a", "lower-bounds": bounds(lower), "upper-bounds": bounds(upper), **sizes,
            "spec-id": 1, "partition": ["x"]}  # fmt: skip
    live = LiveFile(data=data, deletes=({"file-path": "d"},))
    entry = files.entry_of(live, 9, 1)
    assert (entry.number, entry.rows, entry.sid, entry.delete) == (9, 3, sid, '{"file-path": "d"}')
    assert entry.size == 70
    assert files.entry_of(live, 9, None).sid is None
