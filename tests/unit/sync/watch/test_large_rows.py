from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from kuvasz.config.model import OnBadValue
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import RowTooLarge
from kuvasz.model import Segment
from kuvasz.state.tables import State
from kuvasz.sync.watch.large_rows import LargeRows
from kuvasz.sync.watch.last_looks import LastLooks
from tests.support.changes import Sender, insert
from tests.support.scene import Scene


class World(Scene):
    """A scene whose items follow from LSN 1000 on; a row may have 1,000 bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copy(self.items)
        self.source_tables.set(self.items, State.STREAMING)
        self.rows = LargeRows(self.context, LastLooks(self.source_tables, lambda _: ()))

    def bring(self, lsn: int, size: int, name: str = "items") -> None:
        segment = Sender().segment([(lsn, [insert(1, body="x" * size)])])
        assert isinstance(segment, Segment)
        table = dataclasses.replace(segment.relation.table, name=name)
        relation = dataclasses.replace(segment.relation, table=table, oid=hash(name) % 1000)
        self.rows.limit.check(dataclasses.replace(segment, relation=relation))

    @property
    def state(self) -> State:
        return self.source_tables.state(self.items)


@pytest.fixture
def scene(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_row_that_is_too_large_stops_its_table_and_says_where_it_is(
    scene: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        scene.bring(0x1100, 2000)
        scene.bring(0x1200, 2000)
    assert scene.state is State.ERROR
    assert scene.source_tables.look(scene.items).error is not None
    error = scene.source_tables.look(scene.items).error
    assert isinstance(error, RowTooLarge)
    assert error.message == (
        "source shop, table public.items: the transaction at 0/1100 has a row of 2,025 bytes, and"
        " `pipeline.max_row_bytes` is 1,000"
    )
    assert "kuvasz retry --table shop.items" in (error.hint or "")
    assert len(caplog.records) == 1
    assert scene.progress.held(scene.source.name) == {"shop.items"}


def test_smaller_ones_do_not(scene: World) -> None:
    scene.bring(0x1100, 900)
    assert scene.state is State.STREAMING


def test_one_that_the_lake_has_does_not_either(scene: World) -> None:
    scene.bring(900, 2000)
    assert scene.state is State.STREAMING


def test_nor_does_one_of_a_table_that_nobody_wants_or_that_does_not_follow(scene: World) -> None:
    scene.bring(0x1100, 2000, "unknown")
    scene.source_tables.set(scene.items, State.PAUSED)
    scene.bring(0x1100, 2000)
    assert scene.state is State.PAUSED


def test_where_it_is_rejected_its_values_are_cut_away_and_the_table_goes_on(scene: World) -> None:
    segment = Sender().segment([(0x1100, [insert(1, body="x" * 2000), insert(2)])])
    spec = dataclasses.replace(
        scene.items, config=scene.items.config.model_copy(update={"on_bad_value": OnBadValue.REJECT})
    )
    rows = LargeRows(scene.context, Specs(spec))  # type: ignore[arg-type]
    cut = rows.limit.check(segment)
    assert (scene.state, len(cut.lengths), cut.lengths[1]) == (State.STREAMING, 2, segment.lengths[1])
    assert cut.lengths.max() < 100
    scene.source_tables.set(scene.items, State.PAUSED)
    assert rows.limit.check(segment) is segment, "what is parked is whole"


@dataclasses.dataclass(frozen=True)
class Specs:
    spec: SourceTableSpec

    def specs(self, relation: object) -> list[SourceTableSpec]:
        del relation
        return [self.spec]
