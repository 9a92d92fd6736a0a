"""Commits are put together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from kuvasz.errors import LakeError
from kuvasz.lake.files import files
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.files import Changeset, FileEntry, FileTable
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.commit_builder import CommitBuilder, data_json
from kuvasz.model import SourcePosition

HERE = SourcePosition(lsn=0x1A2B, commit_lsn=0x1A00, rows=3, system_id="7361")


def old_delete(path: str) -> str:
    return json.dumps({"file-path": f"old-{path}", "referenced-data-file": path, "record-count": 1})


@pytest.fixture
def table(tmp_path: Path) -> SimpleNamespace:
    """Two files of ten rows; of `b` row 0 is dead."""
    known = FileTable({})
    known.add(FileEntry(number=1, path="a", rows=10, sid="eu", dead=BitMap64()))
    known.add(FileEntry(number=2, path="b", rows=10, sid="eu", dead=BitMap64([0]), delete=old_delete("b")))
    place = f"file://{tmp_path}/items"
    (tmp_path / "items" / "data").mkdir(parents=True)
    return SimpleNamespace(
        definition=SimpleNamespace(name="shop.items", location=place, format_version=3, io_properties={}),
        index=SimpleNamespace(files=known, snapshot_id=42),
    )


def changes(**deletes: list[int]) -> Changeset:
    changeset = Changeset()
    numbers = {"a": 1, "b": 2, "gone": 3, "new": 4}
    changeset.deletes = {numbers[name]: BitMap64(rows) for name, rows in deletes.items()}
    if "new" in deletes:
        changeset.add(4, DataFile(path="new", rows=3, size=9, json='{"new": 1}'), "eu")
    return changeset


def _builder(table: SimpleNamespace, changeset: Changeset) -> CommitBuilder:
    return CommitBuilder(table.definition, table.index, changeset)


def dead_of(table: SimpleNamespace, delete: str) -> list[int]:
    return list(files.read_deletes({}, json.loads(delete)["referenced-data-file"], delete))


@pytest.mark.parametrize("version", [2, 3])
def test_what_dies_is_told_with_what_was_dead(table: SimpleNamespace, version: int) -> None:
    table.definition.format_version = version
    draft = _builder(table, changes(a=[3, 4], b=[0, 5], gone=[1], new=[2]))
    assert not draft.is_empty
    sent = draft.finish({"eu": HERE})
    assert {number: list(rows) for number, rows in sent.deletes.items()} == {1: [3, 4], 2: [5], 4: [2]}
    assert [dead_of(table, one) for one in sent.commit.added_deletes] == [[3, 4], [0, 5], [2]]
    assert {file.path.rpartition(".")[2] for file in sent.delete_files} == {"parquet" if version == 2 else "puffin"}
    assert sent.commit.removed_deletes == [old_delete("b")]
    assert (sent.commit.data_files, sent.commit.removed_files) == (['{"new": 1}'], [])
    assert sent.commit.snapshot_id == 42


def test_a_file_without_a_living_row_is_dropped(table: SimpleNamespace) -> None:
    changeset = changes(b=[*range(1, 10)])
    draft = _builder(table, changeset)
    assert (changeset.dropped, draft.is_empty) == ({2}, False)
    commit = draft.finish({}).commit
    assert (commit.added_deletes, commit.removed_deletes) == ([], [old_delete("b")])
    (removed,) = commit.removed_files
    assert removed == data_json(table.index.files[2])
    assert (json.loads(removed)["file-path"], json.loads(removed)["record-count"]) == ("b", 10)


@pytest.mark.parametrize("deletes", [{}, {"b": [0]}, {"gone": [1]}])
def test_what_was_dead_before_changes_nothing(table: SimpleNamespace, deletes: dict[str, list[int]]) -> None:
    draft = _builder(table, changes(**deletes))
    assert draft.is_empty
    assert draft.finish({"eu": HERE}).commit.is_empty


def test_positions_travel_in_properties_and_summary(table: SimpleNamespace) -> None:
    changeset = changes(new=[])
    changeset.properties["kuvasz.gap.eu"] = "[]"
    changeset.summary["told"] = "so"
    sent = _builder(table, changeset).finish({"eu": HERE})
    assert sent.commit.properties.keys() == {"kuvasz.anchor", "kuvasz.commit", "kuvasz.gap.eu", "kuvasz.position.eu"}
    assert sent.commit.summary == {**sent.commit.properties, "told": "so"}
    assert sent.commit.properties["kuvasz.commit"] == sent.commit_id
    assert _builder(table, changeset).finish({}).commit_id != sent.commit_id


def test_of_many_sources_the_summary_has_one_entry(table: SimpleNamespace) -> None:
    positions = dict.fromkeys((f"s{number}" for number in range(100)), HERE)
    commit = _builder(table, changes(new=[])).finish(positions).commit
    assert {f"kuvasz.position.{source}" for source in positions} <= commit.properties.keys()
    assert commit.summary.keys() == {"kuvasz.anchor", "kuvasz.commit", "kuvasz.positions"}
    assert source_positions.parse(commit.summary, "shop.items") == positions


def test_what_is_read_of_the_newest_metadata_alone_is_in_no_summary(table: SimpleNamespace) -> None:
    changeset = changes(new=[])
    noted = {f"kuvasz.{kind}": "x" for kind in ("columns.eu", "shape.0123456789ab", "rule.eu", "seen.shop.items")}
    changeset.properties |= noted
    commit = _builder(table, changeset).finish({"eu": dataclasses.replace(HERE, published="1:2")}).commit
    assert noted.keys() | {"kuvasz.published.eu"} <= commit.properties.keys()
    assert commit.summary.keys() == {"kuvasz.anchor", "kuvasz.commit", "kuvasz.position.eu"}


def test_a_rewrite_does_not_hide_the_streams_last_commit(table: SimpleNamespace) -> None:
    changeset = changes(new=[])
    changeset.is_rewrite, changeset.sequence = True, 7
    commit = _builder(table, changeset).finish({}).commit
    assert list(commit.properties) == ["kuvasz.rewrite"]
    assert (commit.is_rewrite, commit.sequence) == (True, 7)


def test_a_store_that_fails_is_told(table: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("kuvasz.lake.table.commit_builder.write_vectors", full)
    with pytest.raises(LakeError) as caught:
        _builder(table, changes(a=[1])).finish({})
    assert (
        caught.value.message
        == f"table shop.items: cannot write delete files below {table.definition.location}: no room"
    )
    assert caught.value.hint == "check the warehouse; it is tried again"
