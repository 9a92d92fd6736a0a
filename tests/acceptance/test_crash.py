"""kuvasz is killed wherever it hurts, under load, and starts again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.support.crash_scene import Scene
from tests.support.failpoints import KILLS, KILLS_WHILE_IT_STOPS
from tests.support.lake import group
from tests.support.load import TABLES
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def scene(two_sources: dict[str, Database], new_process: Callable[..., Process]) -> Scene:
    return Scene(two_sources, new_process(group(two_sources, dict.fromkeys(TABLES))))


@pytest.mark.timeout(600)
def test_killed_in_the_copy_and_before_a_commit_then_stopped(scene: Scene) -> None:
    process = scene.process
    with scene.load(1):
        scene.killed_at("copy_range_done:kill:3")
        copied = {(event["source"], event["table"]) for event in process.found("copied")}
        assert copied
        left = process.folder / "state" / "copy"
        assert list(left.iterdir()), "what it had read of a copy"
        scene.killed_at("before_commit:kill:10")
        again = {(event["source"], event["table"]) for event in process.found("copied")}
        assert again, "the copies went on"
        assert not copied & again, "a finished table is not copied again"
        process.start()
        process.wait_event("committed", 10)
        assert process.terminate() < 30  # in the middle of the stream
        scene.assert_nothing_lost(scene.confirmed())
    scene.finish()
    assert not list(left.glob("*"))
    scene.assert_nothing_lost(scene.confirmed())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_every_point(scene: Scene) -> None:
    with scene.load(2):
        for point in KILLS:
            scene.killed_at(point)
    scene.finish()
    nothing_is_left_to_do(scene)


def nothing_is_left_to_do(scene: Scene) -> None:
    """Start once more, and commit nothing."""
    process = scene.process
    confirmed = scene.confirmed()
    scene.assert_nothing_lost(confirmed)
    before = {table: process.snapshots(table) for table in TABLES}
    process.start("--until-caught-up")
    assert process.wait() == 0
    assert not process.found("committed"), process.report()
    assert {table: process.snapshots(table) for table in TABLES} == before
    for sid, lsn in scene.confirmed().items():
        assert lsn >= confirmed[sid]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_random_moments(scene: Scene) -> None:
    seed = random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}")
    moments = random.Random(seed)  # noqa: S311
    with scene.load(seed):
        for number in range(6):
            scene.process.start()
            # The first may fall into the copies, the others anywhere in the stream.
            scene.process.wait_event("lake_open" if number == 0 else "committed")
            time.sleep(moments.uniform(0, 4))
            scene.kill()
    scene.finish()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failures_around_a_commit_are_looked_up_and_tried_again(scene: Scene) -> None:
    points = ("after_commit:error:3", "before_commit:error:8", "after_data_files:error:4",
              "after_delete_files:error:9",
              "before_delete_files:error:12", "before_status:error:6", "after_status:error:9")  # fmt: skip
    with scene.load(3):
        scene.process.start(failpoints=",".join(points))
        for number in range(len(points)):
            scene.process.wait_event("failpoint", number + 1)
        scene.process.wait_confirmed(*scene.sources.values())
        assert not scene.process.found("table_failed"), scene.process.report()
        scene.kill()
    scene.finish()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_while_it_stops(scene: Scene) -> None:
    with scene.load(4):
        for point in KILLS_WHILE_IT_STOPS:
            scene.process.start(failpoints=point)
            scene.process.wait_event("committed", 5)
            scene.process.begin_stop()
            scene.process.wait_killed()
            scene.assert_nothing_lost(scene.confirmed())
    scene.finish()
