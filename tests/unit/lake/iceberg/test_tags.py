"""Tags of the lake's tables, of those too that another process has by now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.iceberg.tags import IcebergTags
from tests.support.changes import TARGET
from tests.support.local_lake import LocalWorld


def test_a_tag_of_a_table_that_was_let_go_of_is_removed_all_the_same(
    local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut that is refused because a group changes hands takes its tags away, or it would seem to be there."""
    local_world.prepare("eu")
    lake, removed = local_world.lake, list[str]()
    handle: Any = SimpleNamespace(snapshots=SimpleNamespace(untag=removed.append))
    lake.let_go(TARGET)
    tags = IcebergTags(lake._tables)
    with pytest.raises(LakeError, match=rf"^table {TARGET}: it is not loaded here"):
        tags.add(TARGET, "cut_a", 60.0)
    monkeypatch.setattr(local_world.catalog, "load", lambda _: handle)
    tags.remove(TARGET, "cut_a")
    assert removed == ["cut_a"]
    monkeypatch.setattr(local_world.catalog, "load", lambda _: None)
    tags.remove(TARGET, "cut_a")
