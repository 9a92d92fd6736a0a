from __future__ import annotations

import dataclasses
import json

from kuvasz.lake.files.commit import TableCommit

DATA = json.dumps({"file-path": "new"})
DELETES = [json.dumps({"file-path": f"{name}.puffin", "referenced-data-file": name}) for name in ("old", "new")]
COMMIT = TableCommit(snapshot_id=1, properties={}, summary={}, data_files=[DATA], added_deletes=DELETES)


def test_rows_that_die_must_be_where_they_were_found() -> None:
    assert COMMIT.existing() == ["old"], "what the commit brings itself cannot be gone"


def test_without_rows_from_before_nothing_must_exist() -> None:
    assert dataclasses.replace(COMMIT, added_deletes=[]).existing() is None
    assert dataclasses.replace(COMMIT, snapshot_id=None).existing() is None
    assert dataclasses.replace(COMMIT, added_deletes=[], removed_files=["x"]).existing() == []


def test_only_rows_count_as_change() -> None:
    empty = dataclasses.replace(COMMIT, data_files=[], added_deletes=[])
    assert empty.is_empty
    assert dataclasses.replace(empty, properties={"a": "b"}, removed_deletes=["x"]).is_empty
    assert not any(dataclasses.replace(empty, **one).is_empty for one in (
        {"data_files": [DATA]}, {"added_deletes": DELETES}, {"removed_files": ["x"]},
    ))  # fmt: skip
