from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import PipelineConfig
from kuvasz.lake.copies.order import COPIES, REPAIRS, Order, clear
from tests.support.changes import ITEMS


def order(*, sid: str | None, has_sid: bool) -> Order:
    shapes = SimpleNamespace(of=lambda feed, relation: (feed, relation))
    table: Any = SimpleNamespace(target=SimpleNamespace(has_sid=has_sid), columns=SimpleNamespace(shapes=shapes))
    feed: Any = SimpleNamespace(sid=sid)
    unused: Any = None
    return Order(
        table=table, feed=feed, relation=ITEMS, jobs=unused, properties={}, folder=Path(), turns=unused,
        pipeline=PipelineConfig(),
    )  # fmt: skip


@pytest.mark.parametrize(("has_sid", "expected"), [(True, "eu"), (False, None)])
def test_rows_have_the_sid_where_the_table_does(has_sid: bool, expected: str | None) -> None:
    assert order(sid="eu", has_sid=has_sid).sid == expected


def test_its_shape_is_that_of_the_feeds_relation() -> None:
    made = order(sid="eu", has_sid=True)
    assert made.shape() == (made.feed, ITEMS)  # type: ignore[comparison-overlap] # of the stand-in


def test_what_jobs_left_that_were_killed_is_cleared(tmp_path: Path) -> None:
    clear(tmp_path)
    for name in (COPIES, REPAIRS):
        (tmp_path / name / "0f").mkdir(parents=True)
        (tmp_path / name / "0f" / "keys").write_bytes(bytes(16))
    (tmp_path / "index").mkdir()
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
