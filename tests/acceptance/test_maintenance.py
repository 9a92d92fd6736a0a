"""Files are exchanged all the time under load, and kuvasz is killed in the middle of it, again and again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.acceptance.load import TABLES
from tests.acceptance.test_crash import Scene, sources  # noqa: F401 (a fixture)
from tests.fix_lake import group
from tests.fix_postgres import Database
from tests.fix_process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Whatever is there is merged, at every look.
EAGER = {"interval": "200ms", "min_files": 2, "max_dead_percent": 2, "target_file_size": "64kB",
         "snapshot_age": "2s", "snapshots_kept": 2}  # fmt: skip

#: Around every step that leaves something behind.
POINTS = ("before_rewrite:kill:2", "after_rewrite:kill:3", "before_swap:kill:2", "after_swap:kill:3")


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def scene(
    sources: dict[str, Database],  # noqa: F811
    new_process: Callable[..., Process],
    request: pytest.FixtureRequest,
) -> Scene:
    lake = {"format_version": request.param}
    return Scene(sources, new_process(group(sources, dict.fromkeys(TABLES)), lake=lake, maintenance=EAGER))


@pytest.mark.timeout(900)
def test_killed_around_an_exchange_of_files(scene: Scene) -> None:
    with scene.load(11):
        for point in POINTS[1::2]:
            scene.killed_at(point)
        scene.process.start()
        scene.process.wait_event("compacted", 5)
        assert not scene.process.found("maintenance_failed"), scene.process.report()
        assert not scene.process.found("table_failed"), scene.process.report()
        scene.kill()
    scene.finish()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hours_of_commits_with_kills_at_random(scene: Scene) -> None:
    """Thousands of mini-transactions with truncates between them; equality is looked at after each phase."""
    seed = random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}")
    moments = random.Random(seed)  # noqa: S311
    for phase in range(4):
        with scene.load(seed + phase):
            for point in moments.sample(POINTS, 2):
                name, action, _ = point.split(":")
                scene.killed_at(f"{name}:{action}:{moments.randint(1, 20)}")
            scene.process.start()
            scene.process.wait_event("committed", 400)
            time.sleep(moments.uniform(0, 2))
            scene.kill()
        for database in scene.sources.values():
            database.execute(moments.choice(("TRUNCATE items", "TRUNCATE docs", "SELECT 1")))
        scene.finish()
