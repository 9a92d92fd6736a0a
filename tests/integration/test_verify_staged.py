"""`kuvasz verify` where changes are staged: what the source was told is staged, and need not be in the lake yet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kuvasz import lsn
from kuvasz.app import App
from kuvasz.config.model import ClusterConfig
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.commit.written import Written
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.ports import TableWork
from kuvasz.state.store import state_of
from kuvasz.sync.context import alignment
from kuvasz.verbs import verify
from kuvasz.verify.report import Report
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database, needs
from tests.support.verify_bench import FILL, ITEMS, Bench, under_load
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]


class SlowLake(IcebergLake):
    """A lake that takes nothing for a while."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_open = threading.Event()
        self.is_open.set()

    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Written:
        self.is_open.wait()
        return super().write(works, apart=apart)


class StagedPipeline(Pipeline):
    """A process that stages and applies; it has the lease."""

    lake: SlowLake

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.lake = SlowLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=self.lake, holds_lease=True)
        await asyncio.to_thread(self.lake.open)
        self._ready.set()
        return await self.app.run()


@pytest.fixture
def bench(
    database: Database, postgres18: EmbeddedPostgres, lake_folder: LakeFolder, tmp_path: Path
) -> Iterator[Bench]:
    needs(database.server, 15, "a staged log")
    coordinator = create_database(postgres18)
    database.execute(ITEMS)
    database.execute(FILL)
    cluster = ClusterConfig.model_validate(
        {"coordinator": coordinator.url, "lease": "10m", "log": str(tmp_path / "log"), "log_interval": "20ms"}
    )
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    config = config.model_copy(update={"cluster": cluster})
    store: Any = state_of(config)
    assert store._lease.take("replicates", "") is None
    yield Bench(config, lake_folder)
    store._database.close()
    drop_database(coordinator)


def confirmed(database: Database) -> int:
    ((found,),) = database.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    return lsn.parse(found)


def test_what_is_staged_and_not_applied_yet_is_no_difference(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StagedPipeline(bench.config, bench.folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.lake.is_open.clear()
        database.execute("UPDATE items SET n = 1 WHERE id % 3 = 0")
        database.execute("DELETE FROM items WHERE id % 701 = 0")
        database.execute("INSERT INTO items VALUES (9000, 1, 'new')")
        ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        wait_until(lambda: confirmed(database) >= lsn.parse(now), "the source has let go of it")
        # The lake gets no further, so nothing is compared.
        with monkeypatch.context() as patch:
            patch.setattr(alignment, "_STUCK_S", 1.0)
            (stuck,) = verify.reports(bench.config, session=bench.folder.session)
        assert "the lake has what is staged up to" in stuck.error
        found: list[Report] = []
        phases: set[str] = set()
        thread = threading.Thread(
            target=lambda: found.extend(bench.verify(on_progress=lambda *told: phases.add(told[2])))
        )
        thread.start()
        wait_until(lambda: "wait for the lake" in phases, "it is waited for")
        pipeline.lake.is_open.set()
        thread.join()
        assert [(one.differences, one.waiting, one.undecided) for one in found] == [(0, 0, 0)]
        bench.damage()
        (damaged,) = bench.verify()
        assert (damaged.missing, damaged.extra, damaged.changed, damaged.doubled) == (1, 1, 2, 1)
        stop, load = under_load(database, _changes)
        try:
            (mended,) = bench.verify(is_fixing=True)
            assert (mended.mended, mended.left) == (5, 0)
            assert [one.differences for one in bench.verify()] == [0]
        finally:
            stop.set()
            load.join()
    database.execute("INSERT INTO items VALUES (9001, 1, 'later')")
    state: Any = state_of(bench.config)
    state._lease.give_back()
    (left,) = verify.reports(bench.config, session=bench.folder.session)
    assert "no process applies what is staged" in left.error
    assert verify.exit_code([left]) == 1


def _changes(number: int) -> list[str]:
    return [
        f"UPDATE items SET n = {number} WHERE id = {100 + number % 500}",
        f"INSERT INTO items VALUES ({10_000 + number}, 0, 'more')",
    ]
