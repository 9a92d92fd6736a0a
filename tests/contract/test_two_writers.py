"""Two processes that both live and write the same tables, each of what it knows: as when one sleeps, and wakes.

Nothing keeps either of them from it but what a commit names. Whatever comes in between, a table has what the source
committed up to its position there, once each; and tables of one group have the same at each moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kuvasz.lake.commit.written import Written
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.model import Segment, TableType
from kuvasz.ports import Failure, Target
from tests.support.changes import ITEMS, TARGET, Sender, again, feed, insert, target, work
from tests.support.local_lake import LocalWorld

#: Each has one of its own transactions in hand, at most, that goes on.
WRITERS = st.sampled_from(["one", "two"])

OTHERS = "shop.others"


class Writer:
    """A process: its lake, where it reads the source, and what it has written and not shown yet."""

    def __init__(self, lake: IcebergLake, tables: Mapping[str, Target]) -> None:
        self.lake = lake
        self.tables = tables
        for name, one in tables.items():
            self.lake.prepare(one, feed("eu", name), ITEMS)
        self.written: Written | None = None
        self.begin()

    def begin(self) -> None:
        """Go on where the table is."""
        self.lsn = min(self.lake.positions(name)["eu"].lsn for name in self.tables)
        self.begun: int | None = None  #: the transaction of which it has sent a part


class WritersMachine(RuleBasedStateMachine):
    """Steps of two writers of tables in which nothing replaces what comes twice."""

    tables: Mapping[str, Target] = MappingProxyType({TARGET: target(table_type=TableType.APPEND)})

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kuvasz-writers-"))
        self.world = LocalWorld(self.folder)
        for name, one in self.tables.items():
            self.world.lake.prepare(one, feed("eu", name), ITEMS)
            self.world.copy("eu", name=name)
        self.sender = Sender(start=5000)
        self.wal: list[tuple[int, list[int]]] = []  #: commit LSN, and the keys of its rows
        self.keys = 0
        self.catalog = self.world.catalog
        self.writers = {
            "one": Writer(self.world.lake, self.tables), "two": Writer(self.world.begin(self.catalog), self.tables)
        }  # fmt: skip

    @rule(rows=st.integers(1, 4))
    def a_transaction_commits(self, rows: int) -> None:
        self.wal.append((self.sender.commit_lsn(), list(range(self.keys, self.keys + rows))))
        self.keys += rows

    @rule(name=WRITERS, most=st.integers(1, 3), is_part=st.booleans())
    def one_writes(self, name: str, most: int, is_part: bool) -> None:
        """Files, of which nothing is shown yet."""
        writer = self.writers[name]
        if writer.written is not None:
            return
        due = [one for one in self.wal if one[0] + 8 > writer.lsn][:most]
        if not due:
            return
        changes: list[Segment] = []
        if writer.begun is not None:
            lsn, keys = due.pop(0)
            assert lsn == writer.begun
            changes.append(self.sender.segment([(lsn, [insert(key) for key in keys[1:]])]))
            writer.begun = None
        elif is_part and len(due[0][1]) > 1:
            lsn, keys = due[0]
            writer.begun, due = lsn, []
            changes.append(self.sender.part(lsn, insert(keys[0])))
        if due:
            changes.append(self.sender.segment([(lsn, [insert(key) for key in keys]) for lsn, keys in due]))
        opened = ["eu"] if writer.begun is not None else []
        made = [work(*map(again, changes), target=name, open_sources=opened) for name in self.tables]
        writer.lsn = max([writer.lsn, *made[0].through.values()])
        writer.written = writer.lake.write(made)

    @rule(name=WRITERS)
    def one_commits(self, name: str) -> None:
        writer = self.writers[name]
        if writer.written is None:
            return
        written, writer.written = writer.written, None
        failed = [one.target for one in writer.lake.commit(written) if isinstance(one, Failure)]
        for table in failed:
            writer.lake.resume(table, writer.lake.failure(table, "eu"))
        if failed:
            writer.begin()

    @rule(name=WRITERS)
    def one_is_killed_and_begins_anew(self, name: str) -> None:
        self.writers[name] = Writer(self.world.begin(self.catalog), self.tables)

    @rule(table=st.sampled_from([TARGET, OTHERS]))
    def another_engine_merges_files(self, table: str) -> None:
        if table in self.tables and self.world.stored(table).now.files:
            self.world.merge_files(table)

    @invariant()
    def tables_have_what_was_committed_once_each(self) -> None:
        for name in self.tables:
            position = self.position(name)
            expected = Counter(key for lsn, keys in self.wal if lsn + 8 <= position for key in keys)
            assert Counter(self.world.table(name).column("id").to_pylist()) == expected, (name, position)

    def position(self, table: str) -> int:
        return self.writers["one"].lake.stored(table)["eu"].lsn

    def teardown(self) -> None:
        try:
            for name in (*self.writers, *self.writers):
                for _ in range(len(self.wal) + 2):
                    self.one_writes(name, 3, False)
                    self.one_commits(name)
            self.tables_have_what_was_committed_once_each()
            for name in self.tables:
                assert len(self.world.table(name)) == self.keys, "all of it is there at last"
        finally:
            for writer in self.writers.values():
                with contextlib.suppress(Exception):
                    writer.lake.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class GroupMachine(WritersMachine):
    """The same of two tables of a group that is committed at once, by two who both take it for theirs."""

    tables = MappingProxyType({
        name: dataclasses.replace(target(name, table_type=TableType.APPEND), group="shop")
        for name in (TARGET, OTHERS)
    })  # fmt: skip

    @invariant()
    def both_are_at_the_same_transaction(self) -> None:
        assert self.position(TARGET) == self.position(OTHERS)


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


MACHINES = pytest.mark.parametrize("machine", [WritersMachine, GroupMachine], ids=("table", "group"))


@pytest.mark.parametrize(
    "machine",
    [pytest.param(WritersMachine, marks=pytest.mark.slow), GroupMachine],
    ids=("table", "group"),
)
def test_two_that_write_the_same_lose_and_double_nothing(machine: type[WritersMachine]) -> None:
    how = settings(max_examples=25, stateful_step_count=25, derandomize=True, **COMMON)
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@MACHINES
def test_two_that_write_the_same_lose_and_double_nothing_in_a_thousand_orders(machine: type[WritersMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=1000, stateful_step_count=50, **COMMON))
