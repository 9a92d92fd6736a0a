"""The map of a running process changes: by its verb, by a signal, by itself; and over kills in the middle of it."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.lake import group
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BOTH = dict.fromkeys(TABLES)


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def hang_up(process: Process) -> None:
    """Send SIGHUP."""
    psutil.Process(process.pid).send_signal(signal.SIGHUP)


def assert_equal(process: Process, databases: dict[str, Database]) -> None:
    process.wait_confirmed(*databases.values())
    for table in TABLES:
        rows = [source_rows(database.url, table, sid=sid) for sid, database in databases.items()]
        process.assert_equal(table, *rows, key=("sid", "id"))


@pytest.mark.timeout(900)
def test_a_running_process_goes_by_what_its_map_has_now(  # noqa: PLR0915 (one life)
    database: Database, second: Database, new_process: Callable[..., Process]
) -> None:
    for one in (database, second):
        create_tables(one)
        fill_tables(one)
    eu, both = {"eu": database}, {"eu": database, "us": second}
    # Commits come seldom: the tests beside this one need the processors, too.
    process = new_process(
        group(eu, {"items": None}), address="127.0.0.1:0", pipeline={"commit_interval": "500ms"}
    )  # fmt: skip
    with Load(database, 1), Load(second, 2):
        process.start()
        process.wait_event("committed", 5)
        streams = len(process.found("reader.streaming"))

        # By the verb: a source is added.
        process.write_map(group(both, {"items": None}))
        shown = process.run("reload", "--dry-run")
        assert (shown.returncode, shown.stdout) == (0, "source shop_us: added\n"), shown.stderr
        assert not process.found("map_taken")
        done = process.run("reload")
        assert (done.returncode, done.stdout) == (0, "source shop_us: added\n"), done.stderr
        process.wait_event("map_in_use", 1)
        process.wait_event("reader.streaming", source="shop_us")
        assert len(process.found("reader.streaming", source="shop_eu")) == streams, "it was not touched"

        # By a signal: a table is added to both.
        process.write_map(group(both, BOTH))
        hang_up(process)
        process.wait_event("map_in_use", 2)
        assert process.found("map_taken")[-1]["by"] == "SIGHUP"
        process.wait_event("copied", 2, table="shop.docs")

        # A faulty one changes nothing, and says why.
        sound = process.map.read_text()
        process.map.write_text(sound.replace('"tables"', '"tabels"'))
        refused = process.run("reload")
        assert refused.returncode == 2
        assert "databases[0].tabels: unknown key 'tabels': did you mean 'tables'?" in refused.stderr
        hang_up(process)
        told = process.wait_event("map_refused")
        assert "unknown key 'tabels'" in told["error"]
        process.map.write_text(sound)
        assert process.run("reload").stdout == "no source or table differs\n"

        # What needs a restart is named; a definition that cannot change is refused.
        changed = json.loads(sound)
        changed["pipeline"]["workers"] = 4
        changed["map"] = {"watch": True}
        process.map.write_text(json.dumps(changed))
        assert process.run("reload").stdout == "pipeline.workers: counts from the next start on\n"
        changed["databases"][0]["tables"]["docs"] = {"partitions_regex": "docs_.*"}
        process.map.write_text(json.dumps(changed))
        told = process.wait_event("map_refused", 2)
        assert (told["by"], told["error"].split("\n")[0]) == (
            "map.watch", "target shop.docs: partitions_regex cannot change while kuvasz runs",
        )  # fmt: skip
        refused = process.run("reload")
        assert (refused.returncode, refused.stderr.split("\n")[0]) == (
            1, "error: target shop.docs: partitions_regex cannot change while kuvasz runs",
        )  # fmt: skip

        # By itself: a table leaves, and comes back with what happened meanwhile.
        before = len(process.found("map_in_use"))
        del changed["databases"][0]["tables"]["docs"]
        process.map.write_text(json.dumps(changed))
        process.wait_event("map_in_use", before + 1)
        time.sleep(1)
        changed["databases"][0]["tables"]["docs"] = None
        process.map.write_text(json.dumps(changed))
        process.wait_event("map_in_use", before + 2)
        process.wait_event("repaired", 2, table="shop.docs")
    assert_equal(process, both)

    # A source leaves: nobody reads its slot, and status says so.
    changed["databases"] = group(eu, BOTH)
    process.map.write_text(json.dumps(changed))
    released = process.wait_event("source_released")
    assert (released["source"], released["slot"]) == ("shop_us", "kuvasz_shop_us")
    second.execute("UPDATE items SET n = n + 1")
    told = []

    def is_told() -> bool:
        told[:] = [process.run("status").stdout]
        return "shop_us left the map: its slot keeps" in told[0]

    process.wait_until(is_told, "status warns of the slot")
    process.terminate()


def table_of(database: Database, name: str) -> list[dict]:
    """Return a map of one source, whose rows have no sid."""
    return group({None: database}, {"items": None}, name=name)


# Slow: tests/integration/test_live_map.py has a table go to another database and back within one process.
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_live", [True, False])
def test_a_table_goes_to_another_database_and_back(
    database: Database, second: Database, new_process: Callable[..., Process], *, is_live: bool
) -> None:
    """As on a day on which readers are given a restored copy of a database, until it is mended itself."""
    for one in (database, second):
        create_tables(one)
        fill_tables(one)
    second.execute("DELETE FROM items WHERE id % 3 = 0")
    second.execute("UPDATE items SET n = -1")
    process = new_process(table_of(database, "shop"), address="127.0.0.1:0")
    process.start()
    process.wait_event("reader.streaming", source="shop")
    for one, name in ((second, "store"), (database, "shop")):
        if not is_live:
            process.terminate()
        process.write_map(table_of(one, name))
        if is_live:
            before = len(process.found("map_in_use"))
            hang_up(process)
            process.wait_event("map_in_use", before + 1)
        else:
            process.start()
        one.execute("UPDATE items SET n = n + 1 WHERE id % 2 = 0")
        process.wait_confirmed(one)
        process.wait_until(lambda: "streaming" in process.run("status").stdout, "the table streams")
        process.assert_equal("items", source_rows(one.url, "items"), key=("id",))
    process.terminate()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kill_while_the_map_changes_is_a_restart(
    database: Database, second: Database, new_process: Callable[..., Process], seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311
    for one in (database, second):
        create_tables(one)
        fill_tables(one)
    both = {"eu": database, "us": second}
    maps = [group(both, BOTH), group(both, {"items": None}), group({"eu": database}, BOTH)]
    process = new_process(maps[0])
    with Load(database, seed), Load(second, 10 + seed):
        for _ in range(3):
            process.start()
            process.wait_event("committed", 3)
            for databases in dice.sample(maps, 2):
                process.write_map(databases)
                hang_up(process)
                time.sleep(dice.uniform(0, 2.5))
            process.kill()
    process.write_map(maps[0])
    process.start()
    process.wait_event("reader.streaming", source="shop_us")
    assert_equal(process, both)
    process.terminate()
