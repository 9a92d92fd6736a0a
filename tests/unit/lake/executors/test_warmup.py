"""What a first start loads beforehand is what the first changes would have waited for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kuvasz.lake.executors import warmup
from kuvasz.lake.executors.warmup import WarmUp, WriteNoise
from kuvasz.model import Wire
from kuvasz.modes import clone
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.shape import Shape


def test_each_task_warms_its_process_and_tells_which_it_is() -> None:
    assert list(WarmUp()([0, 1])) == [os.getpid()] * 2


def test_a_sample_is_as_large_as_was_asked_and_gone_afterwards(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/sample.parquet"
    small, large = WriteNoise({}, path)([0, (2 << 20) + 5])
    assert 0 < small < 1000
    assert 0 < large - (2 << 20) < 10_000, "noise does not become less"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="File name too long"):
        list(WriteNoise({}, f"file://{tmp_path}/{'n' * 300}/sample.parquet")([1]))


def test_every_family_of_values_is_decoded_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Wire] = set()
    apply, copy = clone.apply_changes, clone.apply_copy

    def changed(shape: Shape, data: np.ndarray, lengths: np.ndarray) -> ChunkOutcome:
        found = apply(shape, data, lengths)
        assert found.deleted == 1, "an insert, an update and a delete"
        seen.update(binding.type.wire for binding in shape.bindings)
        return found

    copies: list[int] = []

    def copied(shape: Shape, data: bytes):
        found = copy(shape, data)
        copies.append(found.rows.num_rows)
        assert all(column.null_count == 0 for column in found.rows.columns)
        return found

    monkeypatch.setattr(clone, "apply_changes", changed)
    monkeypatch.setattr(clone, "apply_copy", copied)
    warmup.warm()
    nested = {Wire.ARRAY, Wire.HSTORE, Wire.VECTOR, Wire.BARE_HEX, Wire.TIMESTAMP}
    assert seen >= set(Wire) - nested
    assert copies == [1, 1], "for keys of numbers, and for keys with texts"
