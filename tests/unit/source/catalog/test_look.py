"""A look knows what of the WAL it shows, and waits for the transaction that it must show."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.model import Seen, TableName
from kuvasz.source.catalog import introspect, look
from kuvasz.source.catalog.table import SourceTable
from tests.support.changes import ITEMS
from tests.support.scene import CATALOG

NAME = ITEMS.table


class Server:
    """A catalog with one table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[TableName, SourceTable] = {NAME: CATALOG}
        self.ends = ["0/100", "0/110", "0/120", "0/130"]
        self.flushed = ["0/130"]
        self.locks = 0
        self.running: list[int] = []
        self.names: list[tuple[str, str]] = []
        self.done: list[str] = []
        monkeypatch.setattr(look, "place", lambda _: "shop")
        monkeypatch.setattr(look, "_PAUSE_S", 0.0)
        monkeypatch.setattr(introspect, "load_relations", self._load)

    def _load(self, _: object, names: Any, publications: Any) -> dict[TableName, SourceTable]:
        self.done.append("read")
        return {name: self.found[name] for name in names if name in self.found}

    def transaction(self) -> Any:
        return contextlib.nullcontext()

    def execute(self, query: str, parameters: Any = None) -> SimpleNamespace:
        return SimpleNamespace(fetchall=lambda: self._answer(query, parameters))

    def _answer(self, query: str, parameters: Any) -> list[tuple[Any, ...]]:
        if "wal_flush_lsn" in query:
            return [("0/130", self.flushed.pop(0) if len(self.flushed) > 1 else self.flushed[0], 200)]
        if "wal_insert_lsn" in query:
            return [(self.ends.pop(0),)]
        if "SELECT transactionid" in query:
            assert "read" not in self.done, "whoever the look does not show held his lock before it"
            return [(xid,) for xid in self.running]
        if "pg_locks" in query:
            assert parameters == ("77",)
            self.done.append("waited")
            self.locks -= 1
            return [(max(0, self.locks + 1),)]
        return list(self.names)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Server(monkeypatch)


def test_a_look_shows_what_committed_before_it_began(server: Any) -> None:
    seen, _ = look.look(server, NAME, CATALOG.relation.oid, 0)
    assert seen.lsn == 0x100
    assert seen.table is not None
    assert seen.table.relation.seen == Seen(lsn=0x110, until=0x120)
    assert seen.moved is None


def test_what_runs_meanwhile_is_known_by_its_numbers_in_the_stream(server: Any) -> None:
    server.running = [805, 7]
    (found,) = look.tables(server, [NAME]).values()
    assert found.relation.seen is not None
    assert found.relation.seen.running == {805, 7}


def test_nothing_is_read_before_the_transaction_is_over(server: Any) -> None:
    server.locks = 2
    look.look(server, NAME, CATALOG.relation.oid, 77)
    assert server.done == ["waited", "waited", "waited", "read"]


def test_a_transaction_that_stays_invisible_is_told(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_PATIENCE_S", -1.0)
    server.locks = 1 << 30
    with pytest.raises(SourceError, match="shop: transaction 77 is committed but not visible for"):
        look.look(server, NAME, CATALOG.relation.oid, 77)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_table_of_another_oid_is_looked_for_under_its_new_name(server: Any, *, is_there: bool) -> None:
    if not is_there:
        server.found = {}
    server.names = [("archive", "items_2023")]
    seen, _ = look.look(server, NAME, 4711, 0)
    assert seen.moved == TableName(schema="archive", name="items_2023")
    server.names, server.ends, server.done = [], ["0/200"] * 3, []
    assert look.look(server, NAME, 4711, 0)[0].moved is None


def test_a_table_whose_oid_nobody_knows_is_not_looked_for(server: Any) -> None:
    server.found = {}
    server.names = [("archive", "items_2023")]
    seen, _ = look.look(server, NAME, 0, 0)
    assert (seen.table, seen.moved) == (None, None)


def test_others_are_looked_at_with_it_and_left_out_if_that_fails(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, asked, answer = TableName(schema="public", name="others"), list[list[TableName]](), look.tables

    def tables(connection: Any, names: Any, publications: Any) -> Any:
        asked.append(list(names))
        if len(names) > 1:
            raise SourceError("others are locked")
        return answer(connection, names, publications)

    monkeypatch.setattr(look, "tables", tables)
    server.ends = ["0/200"] * 3
    seen, beside = look.look(server, NAME, CATALOG.relation.oid, 0, beside=[other])
    assert (asked, beside) == ([[NAME, other], [NAME]], {})
    assert seen.table is not None


@pytest.mark.parametrize(
    ("flushed", "end"),
    [
        (["0/130"], 0x130),
        (["0/140"], 0x130),
        (["0/100", "0/120", "0/130"], 0x130),  # of a commit that did not wait for the disk
        (["0/120"], 0x120),  # of a lock, say: nobody knows when it comes
    ],
)
def test_what_is_in_memory_alone_is_waited_for_as_long_as_it_may_be_a_commit(
    monkeypatch: pytest.MonkeyPatch, flushed: list[str], end: int
) -> None:
    server: Any = Server(monkeypatch)
    server.flushed = flushed
    now = itertools.count(0.0, 0.5)
    monkeypatch.setattr(look.time, "monotonic", lambda: next(now))
    assert look.end_to_send(server) == end
