from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from kuvasz.errors import (
    ColumnsUnclear,
    CopyNeeded,
    KuvaszError,
    RowsUnlogged,
    RowTooLarge,
    SchemaAwaited,
    SchemaError,
    SchemaHeld,
    TableError,
)
from kuvasz.state.tables import State
from kuvasz.sync.context.gap_starts import Evidence
from tests.support.scene import Scene


class World(Scene):
    """A scene that notes which tables are looked at anew."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.troubles = self.context.troubles
        self.sent: list[str] = []
        self.requests.send = self.sent.append  # type: ignore[method-assign]


@pytest.fixture
def scene(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_error_is_told_once_until_it_was_mended(scene: World, caplog: pytest.LogCaptureFixture) -> None:
    source_tables, troubles = scene.source_tables, scene.troubles
    error = SchemaError("no such table")
    with caplog.at_level(logging.ERROR):
        troubles.fail(scene.items, error)
        troubles.fail(scene.items, error)
        assert len(caplog.records) == 1
        assert source_tables.state(scene.items) is State.ERROR
        troubles.fail(scene.items, SchemaHeld("its columns changed"))
        assert len(caplog.records) == 2
        assert source_tables.state(scene.items) is State.PAUSED, "it waits for a person"
        troubles.mended(scene.items)
        troubles.fail(scene.items, SchemaHeld("its columns changed"))
        assert len(caplog.records) == 3
    assert {record.__dict__["event"] for record in caplog.records} == {"table_failed"}


def test_what_is_refused_is_looked_at_later_unless_a_person_has_to(scene: World) -> None:
    scene.troubles.refuse(scene.items, SchemaHeld("its columns changed"))
    assert scene.source_tables.look(scene.items).retry_at is None
    scene.troubles.refuse(scene.others, SchemaError("no such table"))
    assert scene.source_tables.look(scene.others).retry_at is not None
    scene.states.pause("shop.others", scene.source.name)
    scene.troubles.refuse(scene.others, SchemaError("no such table"))
    assert scene.source_tables.look(scene.others).retry_at is None


def test_who_waits_for_others_is_looked_at_as_soon_each_time(scene: World) -> None:
    waits = []
    for _ in range(6):
        scene.troubles.refuse(scene.items, SchemaAwaited("another has not done the same"))
        waits.append(scene.source_tables.look(scene.items).retry_at - time.monotonic())
    assert max(waits) < 30, waits


@pytest.mark.parametrize(
    ("error", "state", "is_sent"),
    [
        (CopyNeeded("a column was dropped"), State.NEW, True),
        (TableError("no such table"), State.ERROR, True),
        (SchemaHeld("its columns changed"), State.PAUSED, False),
        (ColumnsUnclear("which columns", through=1), State.ERROR, False),
        (RowTooLarge("a row of 300 MB"), State.ERROR, False),
    ],
)
def test_a_table_in_trouble_holds_its_source(scene: World, error: KuvaszError, state: State, is_sent: bool) -> None:
    scene.copy(scene.items)
    scene.troubles.stop(scene.items, error)
    found = scene.source_tables.look(scene.items)
    assert (found.state, found.is_resync_due) == (state, isinstance(error, CopyNeeded))
    why = "its rows are copied again: a column was dropped"
    assert found.why_copy == (why if isinstance(error, CopyNeeded) else "")
    assert scene.progress.held(scene.source.name) == {"shop.items"}
    assert scene.sent == (["shop.items"] if is_sent else [])


def test_rows_that_no_stream_brings_are_found_by_a_comparison(scene: World) -> None:
    scene.troubles.stop(scene.others, RowsUnlogged("it is UNLOGGED"))
    assert not scene.source_tables.look(scene.others).is_resync_due, "it has no rows"
    scene.copy(scene.items)
    scene.troubles.stop(scene.items, RowsUnlogged("it is UNLOGGED"))
    look = scene.source_tables.look(scene.items)
    assert (look.is_resync_due, look.is_repair) == (True, True)


@pytest.mark.parametrize("is_due", [True, False])
def test_rows_without_wal_are_missed_from_the_last_look_at_their_file_on(scene: World, *, is_due: bool) -> None:
    """Also where another gap is known already: what came since has moved the position."""
    starts = scene.source_tables.gap_starts
    for spec in (scene.items, scene.others):
        starts.prove(Evidence.FILE, spec, 500)
    scene.copy(scene.items)
    scene.source_tables.resync(scene.items, is_due=is_due, is_repair=True)
    for spec in (scene.items, scene.others):
        scene.troubles.stop(spec, RowsUnlogged("it is UNLOGGED"))
    assert starts.get(scene.items) == 500
    assert starts.get(scene.others) is None, "it has no rows"


def test_a_table_that_was_not_published_all_the_time_begins_anew(scene: World) -> None:
    scene.states.activate("shop.items", scene.source.name, 1)
    scene.troubles.interrupt(scene.items)
    assert scene.source_tables.state(scene.items) is State.NEW
    assert scene.progress.held(scene.source.name) == {"shop.items"}
    assert scene.sent == ["shop.items"]
