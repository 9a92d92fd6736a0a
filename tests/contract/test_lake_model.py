"""Any order of changes, parts, truncates, failures, copies and reconnects against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kuvasz.ports import Failure, Receipt
from tests.support.changes import SAME, TARGET, Sender, delete, insert, update, work
from tests.support.examples import examples
from tests.support.lake import LakeFolder
from tests.support.worlds import IcebergWorld, MemoryWorld, World

SOURCES = ("eu", "us")
KEYS = st.integers(1, 6)


class Source:
    """A database: what it holds, and the transactions its log can send again."""

    def __init__(self, name: str) -> None:
        self.sender = Sender(name)
        self.rows: dict[int, tuple[int, str]] = {}
        self.log: list[tuple[int, list[bytes]]] = []  #: whole transactions; one empty list of rows is a TRUNCATE
        self.open: tuple[int, list[bytes], dict[int, tuple[int, str]], bool] | None = None


class LakeModel(RuleBasedStateMachine):
    """Changes gather in `self.changes` until a rule writes them."""

    world: World

    @initialize()
    def start(self) -> None:
        self.world = self.make_world()
        self.sources = {name: Source(name) for name in SOURCES}
        self.world.prepare(*SOURCES)
        self.changes: list = []
        self.through: dict[str, int] = {}
        self.abandoned: set[str] = set()
        self.durable: dict[tuple[str, int], tuple[int, str]] = {}
        self.pending: list = []
        self.number = 0

    def make_world(self) -> World:
        return MemoryWorld(1)

    def _step(self, rows: dict[int, tuple[int, str]], kind: str, key: int, other: int, is_same: bool) -> bytes:
        """Do one thing to rows as a database would, and return what it logs."""
        self.number += 1
        body = f"b{self.number}"
        if kind == "insert" and key not in rows:
            rows[key] = (self.number, body)
            return insert(key, self.number, body)
        if key not in rows:
            rows[key] = (self.number, body)
            return insert(key, self.number, body)
        if kind == "delete":
            del rows[key]
            return delete(key)
        kept = rows[key][1] if is_same else body
        sent = SAME if is_same else body
        if kind == "move" and other not in rows:
            del rows[key]
            rows[other] = (self.number, kept)
            return update(other, self.number, sent, old=key)
        rows[key] = (self.number, kept)
        return update(key, self.number, sent)

    steps = st.lists(
        st.tuples(st.sampled_from(["insert", "update", "delete", "move"]), KEYS, KEYS, st.booleans()),
        min_size=1,
        max_size=6,
    )
    names = st.sampled_from(SOURCES)

    @rule(name=names, steps=steps)
    def transaction(self, name: str, steps: list) -> None:
        source = self.sources[name]
        self._end(source)
        lsn = source.sender.commit_lsn()
        messages = [self._step(source.rows, *step) for step in steps]
        source.log.append((lsn, messages))
        self.changes.append(source.sender.segment([(lsn, messages)]))
        self.through[name] = lsn + 8

    @rule(name=names)
    def truncate(self, name: str) -> None:
        source = self.sources[name]
        self._end(source)
        lsn = source.sender.commit_lsn()
        source.rows.clear()
        source.log.append((lsn, []))
        self.changes.append(source.sender.truncation(lsn))
        self.through[name] = lsn + 8

    @rule(name=names, steps=steps, begins_empty=st.booleans(), is_next=st.booleans())
    def part(self, name: str, steps: list, begins_empty: bool, is_next: bool) -> None:
        source = self.sources[name]
        if is_next:
            self._end(source)
        if source.open is None:
            source.open = (source.sender.commit_lsn(), [], dict(source.rows), begins_empty)
            if begins_empty:
                source.open[2].clear()
                self.changes.append(source.sender.truncation(source.open[0], is_open=True))
        lsn, messages, rows, _ = source.open
        more = [self._step(rows, *step) for step in steps]
        messages += more
        self.changes.append(source.sender.part(lsn, *more))

    @rule(name=names)
    def end_without_rows(self, name: str) -> None:
        self._end(self.sources[name])

    def _end(self, source: Source) -> None:
        if source.open is None:
            return
        lsn, messages, rows, is_truncated = source.open
        source.rows, source.open = rows, None
        if is_truncated:
            source.log.append((lsn, []))
        source.log.append((lsn, messages))
        self.through[source.sender.name] = lsn + 8

    def _open(self) -> list[str]:
        return [name for name, source in self.sources.items() if source.open is not None]

    def _take(self) -> object:
        taken = work(*self.changes, through=self.through, open_sources=self._open(), abandoned=sorted(self.abandoned))
        self.changes, self.through, self.abandoned = [], {}, set()
        visible = {(name, key): row for name, source in self.sources.items() for key, row in source.rows.items()}
        return taken, visible

    @rule()
    def write(self) -> None:
        taken, visible = self._take()
        self.pending.append((self.world.lake.write([taken]), visible, taken.through))

    @precondition(lambda self: self.pending)
    @rule()
    def commit(self) -> None:
        written, visible, through = self.pending.pop(0)
        outcomes = list(self.world.lake.commit(written))
        assert [type(outcome) for outcome in outcomes] == [Receipt], outcomes
        for name, lsn in through.items():
            assert outcomes[0].positions[name].lsn >= lsn
        self.durable = visible

    @rule()
    def write_and_commit(self) -> None:
        self.write()
        while self.pending:
            self.commit()

    @rule(name=names)
    def fail(self, name: str) -> None:
        """A bad value comes; its source is resumed and sends again what is not durable, the others go on."""
        for written, visible, _ in self.pending:
            assert all(isinstance(one, Receipt) for one in self.world.lake.commit(written))
            self.durable = visible
        source = self.sources[name]
        lsn = source.sender.commit_lsn() + 1_000_000
        bad = source.sender.segment([(lsn, [insert(1, "bad")])])
        self.changes.append(bad)
        others = any(change.source != name for change in self.changes) or self.through.keys() - {name}
        taken, visible = self._take()
        ahead = self.world.lake.write([taken])
        behind = self.world.lake.write([work(bad)])
        failure, *receipts = self.world.lake.commit(ahead)
        assert isinstance(failure, Failure)
        assert failure.source == name
        assert not others or receipts
        assert list(self.world.lake.commit(behind)) == []
        self.world.lake.resume(TARGET, self.world.lake.failure(TARGET, name))
        self.pending = []
        kept = {at: row for at, row in self.durable.items() if at[0] == name}
        self.durable = {at: row for at, row in visible.items() if at[0] != name} | kept
        self._send_again(source, source.log)

    @rule(name=names, back=st.integers(0, 4))
    def reconnect(self, name: str, back: int) -> None:
        """What was written may come again; what was not does."""
        source = self.sources[name]
        self.changes = [change for change in self.changes if change.source != name]
        self.through.pop(name, None)
        self.abandoned.add(name)
        position = self.world.lake.positions(TARGET)[name].lsn
        first = sum(lsn < position for lsn, _ in source.log)
        self._send_again(source, source.log[max(0, first - back) :])

    def _send_again(self, source: Source, log: list) -> None:
        for lsn, messages in log:
            again = source.sender.segment([(lsn, messages)]) if messages else source.sender.truncation(lsn)
            self.changes.append(again)
            self.through[source.sender.name] = lsn + 8
        if source.open is not None:
            lsn, messages, _, is_truncated = source.open
            if is_truncated:
                self.changes.append(source.sender.truncation(lsn, is_open=True))
            if messages:
                self.changes.append(source.sender.part(lsn, *messages))

    @rule(name=names)
    def copy(self, name: str) -> None:
        source = self.sources[name]
        if self.pending or self.changes or source.open is not None or self._open():
            return
        lsn = source.sender.commit_lsn()
        self.world.copy(name, *[(key, *row) for key, row in source.rows.items()], lsn=lsn)
        self.durable = {at: row for at, row in self.durable.items() if at[0] != name}
        self.durable |= {(name, key): row for key, row in source.rows.items()}

    @invariant()
    def reader_sees_whole_transactions(self) -> None:
        if hasattr(self, "world"):
            assert self.world.rows() == self.durable

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.lake.close()


def test_the_lake_in_memory_behaves_as_a_dictionary() -> None:
    run_state_machine_as_test(
        LakeModel, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    )


@pytest.mark.spark
def test_iceberg_behaves_as_a_dictionary(lake_folder: LakeFolder, spark_session: object) -> None:
    class OnIceberg(LakeModel):
        def make_world(self) -> World:
            return IcebergWorld(LakeFolder(spark_session))

    run_state_machine_as_test(
        OnIceberg,
        settings=settings(
            max_examples=4, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )  # fmt: skip
