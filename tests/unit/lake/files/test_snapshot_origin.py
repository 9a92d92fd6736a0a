from __future__ import annotations

import pytest

from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.files.snapshot_origin import ENTRY, SnapshotOrigin
from kuvasz.model import Operations


def test_what_is_told_is_read_again() -> None:
    told = SnapshotOrigin(
        by=snapshot_origin.STREAM, operations=Operations(120, 30, 5), writing_s=0.213, waiting_s=0.051
    )
    assert told.entry() == {ENTRY: "stream 120 30 5 0.213 0.051"}
    assert snapshot_origin.parse({"operation": "overwrite", **told.entry()}) == told


def test_a_copy_has_no_times() -> None:
    told = SnapshotOrigin(by=snapshot_origin.COPY, operations=Operations(inserts=500))
    assert snapshot_origin.parse(told.entry()) == told


@pytest.mark.parametrize("text", ["", "stream", "stream 1 2 x 0 0", "stream 1 2 3 4 5 6"])
def test_what_cannot_be_read_says_nothing(text: str) -> None:
    assert snapshot_origin.parse({ENTRY: text}) is None
    assert snapshot_origin.parse({}) is None
