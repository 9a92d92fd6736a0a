"""Cuts of real sources under load: each transaction counts in all tables, so that equal counters prove a cut."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kuvasz import cli, lsn
from kuvasz.config import sources as config_sources
from kuvasz.config.load import load as load_map
from kuvasz.errors import CutRefused, LakeError
from kuvasz.lake.maintenance import run_once
from kuvasz.route.hashing import worker_of
from kuvasz.state.tables import State
from kuvasz.sync.rules.targets import target_of
from kuvasz.worker.cuts import LakeCut
from tests.support.lake import LakeFolder, MemoryPipeline, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.served import ServedPipeline
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("first", "second", "third")

#: Rows of (target, tag).
Read = Callable[[str, str], list[dict[str, Any]]]


class Counter(threading.Thread):
    """Commits transaction after transaction, each with one more in every table, and notes between which LSNs."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._is_done = threading.Event()
        self.committed: list[tuple[int, int, int]] = []  #: number, LSN before its commit, LSN behind it

    def run(self) -> None:
        with self._database.connect(autocommit=True) as session:

            def now() -> int:
                ((at,),) = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                return lsn.parse(at)

            for number in itertools.count(1):
                if self._is_done.is_set():
                    return
                with session.transaction():
                    for name in TABLES:
                        session.execute(f"UPDATE {name} SET n = n + 1 WHERE id = 1")
                        session.execute(f"INSERT INTO {name} VALUES (%s, 0)", (number + 1,))
                    before = now()
                self.committed.append((number, before, now()))

    def stop(self) -> None:
        self._is_done.set()
        self.join()


@pytest.fixture
def three(database: Database, postgres18: Any) -> Iterator[dict[str, Database]]:
    found = {"eu": database, "us": create_database(postgres18), "ap": create_database(postgres18)}
    for one in found.values():
        for name in TABLES:
            one.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
            one.execute(f"INSERT INTO {name} VALUES (1, 0)")
    yield found
    drop_database(found["us"])
    drop_database(found["ap"])


def make(pipeline: Pipeline, name: str, keep_s: float = 3600.0) -> LakeCut:
    sources = [sync.source.name for sync in pipeline.app.sources]
    return pipeline.call(pipeline.app.cuts.make(name, sources, keep_s))


def make_at_last(pipeline: Pipeline, name: str) -> LakeCut:
    """Make a cut, however often it is refused because a source is being read again."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return make(pipeline, name)
        except CutRefused as error:
            if "is being read again" not in error.message or time.monotonic() > end:
                raise
            time.sleep(0.05)


def check(made: LakeCut, counters: dict[str, Counter], read: Read) -> None:
    assert len(set(made.lsns)) == 3
    rows = {name: read(f"shop.{name}", made.tag) for name in TABLES}
    for sid, counter in counters.items():
        at = made.lsns[f"shop_{sid}"]
        shown = {next(row["n"] for row in found if (row["sid"], row["id"]) == (sid, 1)) for found in rows.values()}
        counted = {sum(row["sid"] == sid for row in found) - 1 for found in rows.values()}
        assert len(shown) == 1, (sid, shown)
        assert shown == counted
        (number,) = shown
        for transaction, before, behind in tuple(counter.committed):
            assert transaction > number or before < at, "what is shown committed before the LSN"
            assert transaction <= number or behind > at, "and nothing else did"


def load(three: dict[str, Database]) -> dict[str, Counter]:
    counters = {sid: Counter(one) for sid, one in three.items()}
    for counter in counters.values():
        counter.start()
    return counters


def test_cuts_of_three_sources_under_load_show_whole_transactions_of_one_lsn_each(
    three: dict[str, Database], lake_folder: LakeFolder
) -> None:
    assert {worker_of(f"shop.{name}", 2) for name in TABLES} == {0, 1}
    config = lake_folder.config(group(three, dict.fromkeys(TABLES)), workers=2, transaction_spill_bytes="64kB")
    with MemoryPipeline(config, lake_folder) as pipeline:
        pipeline.lake.about.namespace = "_kuvasz"
        pipeline.wait_streaming()
        counters = load(three)
        for number in range(12):
            made = make_at_last(pipeline, f"cut_{number}")
            check(made, counters, lambda *tag: pipeline.lake.tags.rows[tag].to_pylist())
            if number % 4 == 3:
                pipeline.call(_rewound(pipeline))
                pipeline.wait_streaming()
            time.sleep(0.1)
        for counter in counters.values():
            counter.stop()
        pipeline.wait_applied(*three.values())
        assert made.snapshots.keys() == {f"shop.{name}" for name in TABLES}
        *earlier, first, second, third = pipeline.lake.about.told["cuts"]
        lsns = [(source, lsn.render(at)) for source, at in sorted(made.lsns.items())]
        for row, name in zip((first, second, third), TABLES, strict=True):
            assert (row["cut"], row["tag"], row["target"]) == ("11", "cut_11", f"shop.{name}")
            assert (row["snapshot_id"], row["lsns"]) == (made.snapshots[f"shop.{name}"], lsns)
        assert {row["tag"] for row in earlier} == {f"cut_{number}" for number in range(11)}
        pipeline.tell("pause", "shop.first", "shop_us")
        pipeline.wait_state("shop_us", "shop.first", State.PAUSED)
        with pytest.raises(CutRefused, match=r"source shop_us, table shop\.first: it is paused"):
            make(pipeline, "cut_late")
        assert not any(tag == "cut_late" for _, tag in pipeline.lake.tags.rows)


@pytest.mark.parametrize(("interval", "is_due"), [("600s", False), ("1s", True)])
def test_no_table_is_held_for_longer_than_an_interval(
    three: dict[str, Database], lake_folder: LakeFolder, interval: str, is_due: bool
) -> None:
    """A cut waits for nobody's next commit: several are made while none is due. Where one is, rows come between."""
    config = lake_folder.config(group(three, dict.fromkeys(TABLES)), workers=2, commit_interval=interval)
    with MemoryPipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        counters = load(three)
        shown: list[int] = []
        while len(shown) < 4 or (is_due and shown[0] == shown[-1]):
            before = {sid: len(counter.committed) for sid, counter in counters.items()}
            wait_until(
                lambda before=before: all(len(one.committed) > before[sid] + 1 for sid, one in counters.items()),
                "there are changes",
            )
            made = make_at_last(pipeline, f"cut_{len(shown)}")
            check(made, counters, lambda *tag: pipeline.lake.tags.rows[tag].to_pylist())
            shown.append(sum(len(pipeline.lake.tags.rows[f"shop.{name}", made.tag]) for name in TABLES))
        for counter in counters.values():
            counter.stop()
    assert shown == sorted(shown)


async def _rewound(pipeline: Pipeline) -> None:
    """Have sources read again from what is confirmed, as after a connection that broke."""
    for sync in pipeline.app.sources:
        sync.reader.rewind()


def test_cuts_are_tags_that_keep_their_snapshots_until_their_time_is_over(
    three: dict[str, Database], lake_folder: LakeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    config = lake_folder.config(
        group(three, dict.fromkeys(TABLES)), {"interval": "1d", "snapshot_age": "1s", "snapshots_kept": 1}, workers=2
    )
    catalog = SqlCatalog(lake_folder.catalog, **lake_folder.pyiceberg)

    def read(target: str, tag: str) -> list[dict[str, Any]]:
        table = catalog.load_table(target)
        return table.scan(snapshot_id=table.metadata.refs[tag].snapshot_id).to_arrow().to_pylist()

    file = lake_folder.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))
    with ServedPipeline(load_map(file, {}).config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        counters = load(three)
        with pytest.raises(SystemExit) as end:
            cli.main(["cut", "--name", "month-end", "--database", "shop", "--config", str(file)])
        assert not end.value.code
        told = capsys.readouterr().out.splitlines()
        assert told[0] == "cut month-end: tag cut_month-end"
        assert [line.split(":")[0] for line in told[1:]] == [
            "  source shop_ap", "  source shop_eu", "  source shop_us",
            "  table shop.first", "  table shop.second", "  table shop.third",
        ]  # fmt: skip
        made = [make(pipeline, f"cut_{number}", keep_s) for number, keep_s in enumerate((3600.0, 0.0, 3600.0))]
        with pytest.raises(LakeError, match="cut_0"):
            make(pipeline, "cut_0")
        for counter in counters.values():
            counter.stop()
        pipeline.wait_applied(*three.values())
    for one in made:
        check(one, counters, read)
    time.sleep(1.1)
    targets = [target_of(spec) for spec in config_sources.resolve(config)[0].tables]
    run_once.maintain(config, targets, full=True, session=lake_folder.session)
    for target in targets:
        assert catalog.load_table(target.name).metadata.refs.keys() == {"main", "cut_month-end", "cut_0", "cut_2"}
    check(made[0], counters, read)
    check(made[2], counters, read)
