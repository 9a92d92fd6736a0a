"""kuvasz is killed wherever it hurts, under load, and starts again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.load import TABLES, Load, create_tables, fill_tables
from tests.acceptance.replay import Replay, lake_text
from tests.fix_lake import group
from tests.fix_postgres import Database, create_database, drop_database
from tests.fix_process import Process
from tests.oracle import source_rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


class Scene:
    """Two loaded sources, their replays, and kuvasz."""

    def __init__(self, sources: dict[str, Database], process: Process) -> None:
        self.sources = sources
        self.process = process
        self.replays = {sid: Replay(database, *TABLES) for sid, database in sources.items()}
        self.first_confirmed: dict[str, int] = {}
        for database in sources.values():
            fill_tables(database)

    @contextlib.contextmanager
    def load(self, seed: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for number, database in enumerate(self.sources.values()):
                stack.enter_context(Load(database, seed + number))
            yield

    def confirmed(self) -> dict[str, int]:
        """What each source was told is safe; call it before what is left of a killed kuvasz can still commit."""
        found = {}
        for sid, database in self.sources.items():
            rows = database.execute(
                "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
                " WHERE database = current_database() AND slot_name LIKE 'kuvasz_shop%' AND NOT temporary"
            )
            if rows:
                found[sid] = int(rows[0][0])
                self.first_confirmed.setdefault(sid, found[sid])
        return found

    def assert_nothing_lost(self, confirmed: dict[str, int]) -> None:
        """Every transaction that ended at or before what was confirmed is in every table, and none is there twice.

        A table holds its source up to its position. Beyond that, up to what is confirmed, there may be no
        transaction that touched it: replayed through the later of the two, the source looks as the lake does.
        """
        for sid, lsn in confirmed.items():
            replay = self.replays[sid]
            replay.read()
            for table, columns in TABLES.items():
                position = self.process.positions(table).get(f"shop_{sid}")
                if position is None:
                    assert lsn == self.first_confirmed[sid], f"confirmed to {sid} while {table} was not copied"
                    continue
                lake = lake_text(self.process.rows(table), columns, sid)
                source = replay.state(table, max(position.lsn, lsn), len(columns))
                assert lake == source, (
                    f"{table} of {sid} at {position.lsn:X}, confirmed {lsn:X}:"
                    f" missing {list((source - lake).items())[:5]}, too many {list((lake - source).items())[:5]}"
                )

    def kill(self) -> None:
        """SIGKILL now, and look."""
        helpers = self.process.helpers()
        self.process.begin_kill()
        self.process.wait()
        confirmed = self.confirmed()
        self.process.wait_helpers(helpers)
        self.assert_nothing_lost(confirmed)

    def killed_at(self, failpoint: str, *arguments: str) -> None:
        """Start, let a failpoint kill kuvasz, and look."""
        self.process.start(*arguments, failpoints=failpoint)
        self.process.wait_killed()
        assert self.process.found("failpoint"), self.process.report()
        self.assert_nothing_lost(self.confirmed())

    def finish(self) -> None:
        """Without load, catch up and compare with the sources themselves."""
        self.process.start("--until-caught-up")
        assert self.process.wait() == 0, self.process.report()
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.process.assert_equal(table, *rows, key=("sid", "id"))


@pytest.fixture
def sources(postgres18, postgres16) -> Iterator[dict[str, Database]]:
    made = {"eu": create_database(postgres18), "us": create_database(postgres16)}
    for database in made.values():
        create_tables(database)
    yield made
    for database in made.values():
        drop_database(database)


@pytest.fixture
def scene(sources: dict[str, Database], new_process: Callable[..., Process]) -> Scene:
    return Scene(sources, new_process(group(sources, dict.fromkeys(TABLES))))


@pytest.mark.timeout(600)
def test_killed_in_the_copy_and_around_the_commit(scene: Scene) -> None:
    with scene.load(1):
        scene.killed_at("copy_range_done:kill:3")
        copied = {(event["source"], event["table"]) for event in scene.process.found("copied")}
        assert copied
        scene.killed_at("after_commit:kill:9")
        again = {(event["source"], event["table"]) for event in scene.process.found("copied")}
        assert again, "the copies went on"
        assert not copied & again, "a finished table is not copied again"
        scene.killed_at("before_commit:kill:5")
        scene.killed_at("after_durable:kill:9")
    scene.finish()


#: Each kills one run; counts are chosen to fall into the copy, the catching up and the stream.
POINTS = (
    "before_slot:kill",
    "slot_created:kill",
    "snapshot_taken:kill:2",
    "copy_range_done:kill:1",
    "before_data_files:kill:3",
    "after_data_files:kill:5",
    "before_delete_files:kill:4",
    "after_delete_files:kill:6",
    "before_commit:kill:7",
    "after_commit:kill:8",
    "before_durable:kill:6",
    "after_durable:kill:10",
    "before_status:kill:5",
    "after_status:kill:7",
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_every_point(scene: Scene) -> None:
    with scene.load(2):
        for point in POINTS:
            scene.killed_at(point)
    scene.finish()


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


#: Each kills one run while it stops.
STOPPING = ("shutdown:kill", "before_checkpoint:kill", "after_checkpoint:kill:2")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_while_it_stops(scene: Scene) -> None:
    with scene.load(4):
        for point in STOPPING:
            scene.process.start(failpoints=point)
            scene.process.wait_event("committed", 5)
            scene.process.begin_stop()
            scene.process.wait_killed()
            scene.assert_nothing_lost(scene.confirmed())
    scene.finish()


@pytest.mark.timeout(600)
def test_stops_in_time_and_a_second_start_has_nothing_to_do(scene: Scene) -> None:
    process, databases = scene.process, scene.sources.values()
    with scene.load(5):
        process.start()
        process.wait_event("copied", 4)
        process.wait_event("committed", 10)
        assert process.terminate() < 30  # in the middle of the stream
        scene.assert_nothing_lost(scene.confirmed())
        process.start()
        process.wait_event("committed", 3)
    process.wait_confirmed(*databases)
    assert process.terminate() < 30
    confirmed = scene.confirmed()
    scene.assert_nothing_lost(confirmed)
    before = {table: process.snapshots(table) for table in TABLES}
    process.start("--until-caught-up")
    assert process.wait() == 0
    assert not process.found("committed"), process.report()
    assert {table: process.snapshots(table) for table in TABLES} == before
    for sid, lsn in scene.confirmed().items():
        assert lsn >= confirmed[sid]
