"""A second lake of the same log: it joins under load, dies, and is retired; one slot a source serves both lakes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from kuvasz import lsn
from tests.support.lake import group
from tests.support.load import TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

_APPLIED = {
    "first": "SELECT source, applied FROM kuvasz.log_source",
    "blue": "SELECT source, applied FROM kuvasz.log_group_source WHERE name = 'blue'",
    "old": "SELECT source, applied FROM kuvasz.log_group_source WHERE name = 'old'",
}


class Lakes:
    """A process that reads, and one for each lake that applies."""

    def __init__(
        self, sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]
    ) -> None:
        self.coordinator = coordinator
        self.sources = sources
        self.groups = group(sources, dict.fromkeys(TABLES))
        self.first = new_process(self.groups)
        self.log = self.first.folder / "log"
        cluster = {"coordinator": coordinator.url, "lease": "5s", "log": str(self.log)}
        self.first._cluster = {**cluster, "role": "apply"}
        self.first.write_map(self.groups)
        self.read = new_process(self.groups, cluster=cluster, lake_of=self.first)
        self.blue = new_process(self.groups, cluster={**cluster, "role": "apply", "group": "blue"})
        for database in sources.values():
            fill_tables(database)

    def give(self, process: Process, *, group: str | None) -> None:
        """Give a process the map of a group, or that of the first one."""
        rest = {name: value for name, value in process._cluster.items() if name != "group"}
        process._cluster = rest if group is None else {**rest, "group": group}
        process.write_map(self.groups)

    def start_read(self) -> None:
        self.read.start("--role", "read")

    def applied(self, lake: str) -> dict[str, int]:
        """Return how far a lake is, by what the coordinator knows."""
        is_made = self.coordinator.execute("SELECT to_regclass('kuvasz.log_group_source') IS NOT NULL")
        return dict(self.coordinator.execute(_APPLIED[lake])) if is_made == [(True,)] else {}

    def wait_applied(self, *lakes: str) -> None:
        """Wait until all that the sources have by now is in lakes."""
        for sid, database in self.sources.items():
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            for lake in lakes:
                wait_until(
                    lambda lake=lake, sid=sid, now=now: self.applied(lake).get(f"shop_{sid}", 0) >= lsn.parse(now),
                    lambda lake=lake: f"all is in {lake}: {self.applied(lake)}\n{self.report()}",
                )

    def wait_empty(self) -> None:
        wait_until(lambda: not list(self.log.iterdir()), lambda: f"no object is left\n{self.report()}")
        for table in ("log_object", "log_slice"):
            query = f"SELECT count(*) FROM kuvasz.{table}"
            wait_until(lambda query=query: self.coordinator.execute(query) == [(0,)], f"{table} is empty")

    def assert_equal(self, *lakes: Process) -> None:
        """By PyIceberg and DuckDB, row for row."""
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            for lake in lakes:
                lake.assert_equal(table, *rows)

    def known(self) -> dict[str, dict]:
        """Return the groups as the command lists them."""
        found = self.read.run("cluster", "groups", "--json")
        assert found.returncode == 0, found.stderr
        return {one["group"]: one for one in json.loads(found.stdout)["groups"]}

    def report(self) -> str:
        """Return what the processes told, for failures."""
        return f"first:\n{self.first.report()}\nblue:\n{self.blue.report()}\nread:\n{self.read.report()}"


@pytest.fixture
def lakes(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Lakes:
    return Lakes(two_sources, coordinator, new_process)


def test_a_second_lake_joins_under_load_is_killed_and_retired(
    lakes: Lakes, new_process: Callable[..., Process]
) -> None:
    first, blue, read = lakes.first, lakes.blue, lakes.read
    lakes.start_read()
    first.start()
    with Load(lakes.sources["eu"], 1), Load(lakes.sources["us"], 2):
        lakes.wait_applied("first")
        blue.start()
        blue.wait_event("copied")
        blue.kill()
        wait_until(lambda: lakes.known()["blue"]["objects"] > 0, "what it lacks is kept")
        blue.start()
        blue.wait_event("committed", 5)
        # Its sources change hands: it looks at them again, and goes on.
        read.kill()
        lakes.start_read()
        lakes.wait_applied("first", "blue")
        first.kill()
        lakes.wait_applied("blue")
        first.start()
        blue.kill()
        blue.start()
        blue.wait_event("committed", 5)
        lakes.wait_applied("first", "blue")
        assert lakes.known()["blue"]["is_applied"]
    lakes.wait_applied("first", "blue")
    assert not blue.found("copied"), "nothing is copied again"
    assert not first.found("copied")
    lakes.wait_empty()
    for database in lakes.sources.values():
        found = database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        assert len(found) == 1, "one slot for two lakes"
    lakes.assert_equal(first, blue)
    for lake in (first, blue):
        verified = lake.run("verify", "--json")
        assert verified.returncode == 0, f"{verified.stdout}\n{verified.stderr}"
        assert {one["source"] for one in json.loads(verified.stdout)} == {"shop_eu", "shop_us"}
    refuse_one_without_a_lake_of_its_own(lakes, new_process)
    retire(lakes)
    # Who comes back begins with what it missed, or says that it missed something.
    blue.start()
    told = blue.wait_event("source_stopped", 2)
    assert "the log has not all that follows" in told["error"]
    blue.kill()
    for process in (first, read):
        process.terminate()


def refuse_one_without_a_lake_of_its_own(lakes: Lakes, new_process: Callable[..., Process]) -> None:
    """Nor with the second one's."""
    for name, other in {"green": lakes.first, "red": lakes.blue}.items():
        third = new_process(lakes.groups, cluster={**lakes.blue._cluster, "group": name}, lake_of=other)
        checked = third.run("check", "--json")
        assert checked.returncode == 3, checked.stdout
        (found,) = [one for one in json.loads(checked.stdout) if one["check"] == "own_tables"]
        assert (found["ok"], "its lake is that of" in found["value"]) == (False, True)
        third.start()
        wait_until(lambda third=third: not third.is_running, "nothing of it can start", 120)
        told = third.found("source_failed")
        assert all("its lake is that of" in one["error"] for one in told)
        assert {one["source"] for one in told} == {"shop_eu", "shop_us"}
        assert third.run("cluster", "retire", name, "--yes").returncode == 0
    lakes.assert_equal(lakes.first, lakes.blue)


def retire(lakes: Lakes) -> None:
    first, blue, read = lakes.first, lakes.blue, lakes.read
    # Nobody applies for the group: what it lacks stays, and goes with it.
    refused = read.run("cluster", "retire", "blue", "--yes")
    assert refused.returncode == 2
    assert "is in use" in refused.stderr
    blue.terminate()
    verified = blue.run("verify")
    assert (verified.returncode, "no process applies what is staged" in verified.stdout) == (1, True), verified.stdout
    with Load(lakes.sources["eu"], 3), Load(lakes.sources["us"], 4):
        first.wait_event("committed", len(first.found("committed")) + 5)
    lakes.wait_applied("first")
    time.sleep(3)
    assert list(lakes.log.iterdir())
    (lag,) = [one for name, one in lakes.known().items() if name == "blue"]
    assert lag["objects"] == len(list(lakes.log.iterdir()))
    assert (lag["behind_seconds"] > 0, lag["is_applied"]) == (True, False)
    retired = read.run("cluster", "retire", "blue", "--yes")
    assert retired.returncode == 0, retired.stderr
    assert lakes.known() == {}
    lakes.wait_empty()
    lakes.assert_equal(first)


def test_a_second_lake_becomes_the_first_one_while_sources_change(lakes: Lakes) -> None:
    first, blue, read = lakes.first, lakes.blue, lakes.read
    lakes.start_read()
    first.start()
    lakes.wait_applied("first")
    blue.start()
    with Load(lakes.sources["eu"], 1), Load(lakes.sources["us"], 2):
        lakes.wait_applied("first", "blue")
        refused = read.run("cluster", "promote", "blue", "--former", "old", "--yes")
        assert (refused.returncode, "is in use" in refused.stderr) == (2, True)
        first.kill()
        blue.terminate()
        time.sleep(6)  # the lease of the one that died
        promoted = read.run("cluster", "promote", "blue", "--former", "old", "--yes")
        assert promoted.returncode == 0, promoted.stderr
        assert lakes.known().keys() == {"old"}
        # Whose map is that of before has tables that are the other one's by now.
        first.start()
        wait_until(lambda: not first.is_running, "nothing of it can start", 120)
        assert all("its lake is that of group old" in one["error"] for one in first.found("source_failed"))
        lakes.give(blue, group=None)
        lakes.give(first, group="old")
        blue.start()
        first.start()
        for process in (first, blue):
            process.wait_event("committed", 5)
        # The one that reads goes on, and so does who takes over from it.
        read.kill()
        lakes.start_read()
        first.kill()
        first.start()
        first.wait_event("committed", 5)
    lakes.wait_applied("first", "old")
    for process in (first, blue):
        assert not process.found("copied"), "nothing is copied again"
    lakes.wait_empty()
    lakes.assert_equal(first, blue)
    first.terminate()
    assert read.run("cluster", "retire", "old", "--yes").returncode == 0
    for process in (blue, read):
        process.terminate()


class RowFilters:
    """Maps in which rows of `items` stay at the sources, and what three processes make of them."""

    def __init__(self, lakes: Lakes) -> None:
        self.lakes = lakes
        self.processes = lakes.first, lakes.blue, lakes.read
        for database in lakes.sources.values():
            database.execute("ALTER TABLE items REPLICA IDENTITY FULL")

    def give(self, process: Process, most: int, *, row_filter: bool = True) -> None:
        """Give a process, which does not run, a map."""
        items = {"filter": f"n < {most}", "row_filter": row_filter}
        process.write_map(group(self.lakes.sources, {"items": items, "docs": None}))

    def restart(self, process: Process, most: int, *, row_filter: bool = True) -> None:
        process.terminate()
        self.give(process, most, row_filter=row_filter)
        process.start(*(("--role", "read") if process is self.lakes.read else ()))

    def checked(self) -> list[tuple[str, bool]]:
        """Return what `kuvasz check` says of the publications with the second lake's map."""
        found = json.loads(self.lakes.blue.run("check", "--json").stdout)
        return [(one["value"], one["ok"]) for one in found if one["check"] == "publication"]

    def wait_refused(self) -> None:
        """Wait until the second lake's tables say that they are published in another way than its map has it."""
        for sid in self.lakes.sources:
            told = self.lakes.blue.wait_event("table_failed", source=f"shop_{sid}")
            assert "has table public.items with another row filter" in told["error"], told
            assert "the same in the maps of all groups" in told["error"], told
        assert [ok for value, ok in self.checked() if "with another row filter" in value] == [False, False]
        planned = self.lakes.blue.run("plan", "--json").stdout
        assert "ALTER PUBLICATION" not in planned, "whoever ran that would take it from the first one"

    def assert_equal(self, most: int) -> None:
        """Both lakes have the rows within the filter, and all of the other table, by PyIceberg and DuckDB."""
        self.lakes.wait_applied("first", "blue")
        assert self.checked() == [("fits", True)] * 2
        for table, where in (("items", f"n < {most}"), ("docs", "true")):
            rows = [source_rows(one.url, table, sid=sid, where=where) for sid, one in self.lakes.sources.items()]
            for process in (self.lakes.first, self.lakes.blue):
                process.assert_equal(table, *rows)


def test_a_row_filter_is_that_of_all_groups_or_the_table_waits(lakes: Lakes) -> None:
    """Rows outside it do not come, and whoever hears the stream cannot tell them from those that never were."""
    filters, sources = RowFilters(lakes), lakes.sources
    for process in filters.processes:
        filters.give(process, 1)
    lakes.start_read()
    lakes.first.start()
    lakes.wait_applied("first")
    lakes.blue.start()
    with Load(sources["eu"], 1), Load(sources["us"], 2):
        lakes.wait_applied("first", "blue")
    filters.assert_equal(1)
    with Load(sources["eu"], 3), Load(sources["us"], 4):
        for process in (lakes.read, lakes.first):
            filters.restart(process, 3)
        filters.wait_refused()
        lakes.wait_applied("first")
        filters.restart(lakes.blue, 3)
        lakes.blue.wait_event("committed", 5)
    filters.assert_equal(3)
    # It goes: all rows come, and the second lake's map says what is not so any more.
    with Load(sources["eu"], 5), Load(sources["us"], 6):
        for process in (lakes.read, lakes.first):
            filters.restart(process, 3, row_filter=False)
        filters.wait_refused()
        filters.restart(lakes.blue, 3, row_filter=False)
        lakes.blue.wait_event("committed", 5)
    filters.assert_equal(3)
    for process in filters.processes:
        process.terminate()
