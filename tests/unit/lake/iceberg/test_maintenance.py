"""The tables' upkeep, for whoever asks the lake."""

from __future__ import annotations

import threading
import time

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.iceberg.maintenance import IcebergMaintenance
from tests.support.changes import TARGET, Sender, insert, work
from tests.support.local_lake import LocalWorld


def test_whoever_starts_twice_gets_one_maintainer(local_world: LocalWorld) -> None:
    first = local_world.lake.maintenance.maintainer
    assert first is not None
    local_world.lake.maintenance.start()
    assert local_world.lake.maintenance.maintainer is first


def test_before_it_is_started_there_is_nothing_to_show(local_world: LocalWorld) -> None:
    lake = local_world.lake
    idle = IcebergMaintenance(local_world.config, lake.engine, lake._tables)
    assert idle.upkeep() == {}
    idle.stop()


@pytest.mark.parametrize("is_started", [True, False])
def test_a_table_that_is_not_loaded_cannot_be_looked_after(local_world: LocalWorld, is_started: bool) -> None:
    lake = local_world.lake
    idle = IcebergMaintenance(local_world.config, lake.engine, lake._tables)
    if not is_started:
        local_world.prepare("eu")
    with pytest.raises(LakeError) as caught:
        (lake.maintenance if is_started else idle).run(TARGET, full=False)
    assert caught.value.message == f"table {TARGET}: it is not loaded, so its files cannot be looked after"


def test_one_that_is_let_go_of_before_its_turn_is_left_to_who_has_it(local_world: LocalWorld) -> None:
    local_world.prepare("eu")
    lake, table, failed = local_world.lake, local_world.loaded(), list[LakeError]()
    maintainer = lake.maintenance.maintainer
    assert maintainer is not None

    def ask() -> None:
        try:
            lake.maintenance.run(TARGET, full=True)
        except LakeError as error:
            failed.append(error)

    with maintainer.without("shop.others"):  # something else is done meanwhile
        waiting = threading.Thread(target=ask)
        waiting.start()
        time.sleep(0.1)
        lake._tables.let_go(TARGET)
    waiting.join(30)
    (error,) = failed
    assert error.message == f"table {TARGET}: it is not loaded, so its files cannot be looked after"
    assert not table.index.is_open
    assert lake.maintenance.upkeep() == {}


def test_a_table_is_looked_after_when_it_is_asked_for_and_shown_then(local_world: LocalWorld) -> None:
    local_world.prepare("eu")
    eu = Sender()
    for key in range(3):
        local_world.applied(work(eu.one(insert(key))))
    assert local_world.lake.maintenance.upkeep() == {}
    done = local_world.lake.maintenance.run(TARGET, full=True)
    assert (done.target, done.files, done.rows) == (TARGET, 1, 3)
    assert local_world.lake.maintenance.upkeep() == {TARGET: done}
