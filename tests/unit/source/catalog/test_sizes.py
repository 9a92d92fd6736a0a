"""What is made of the sizes that a server says; the query is tried on servers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import errors

from kuvasz.errors import SourceError, SourceLocked
from kuvasz.model import TableName
from kuvasz.source.catalog import sizes
from kuvasz.source.catalog.table import Leaf
from tests.support.scene import CATALOG

UNSIZED = dataclasses.replace(CATALOG, pages=None, toast_bytes=None)


class Server:
    """Knows sizes by OID; some tables are locked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sizes, "place", lambda _: "shop")
        self.sizes = {CATALOG.relation.oid: (3 * 8192, 100)}
        self.locked: set[int] = set()
        self.asked: list[list[int]] = []

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def execute(self, query: str, parameters: tuple[list[int], ...] = ()) -> Any:
        if not parameters:
            assert query.startswith("SET LOCAL lock_timeout")
            return None
        (oids,) = parameters
        self.asked.append(oids)
        if self.locked.intersection(oids):
            raise errors.LockNotAvailable("canceling statement due to lock timeout")
        return SimpleNamespace(fetchall=lambda: [(oid, *self.sizes[oid]) for oid in oids if oid in self.sizes])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Server(monkeypatch)


def other(oid: int) -> Any:
    return dataclasses.replace(UNSIZED, relation=dataclasses.replace(UNSIZED.relation, oid=oid))


def test_a_table_has_the_pages_and_what_lies_beside_them(server: Any) -> None:
    found = sizes.sized(server, UNSIZED)
    assert (found.pages, found.toast_bytes, found.bytes) == (3, 100, 3 * 8192 + 100)


def test_a_partitioned_table_has_those_of_its_partitions(server: Any) -> None:
    leaves = tuple(
        Leaf(oid=oid, table=TableName(schema="public", name=f"p{oid}"), page_bytes=8192, row_estimate=None)
        for oid in (8, 9)
    )
    server.sizes = {CATALOG.relation.oid: (0, 0), 8: (8192, 7), 9: (16384, 0)}
    found = sizes.sized(server, dataclasses.replace(UNSIZED, leaves=leaves))
    assert (found.pages, found.toast_bytes) == (3, 7)
    assert [(leaf.pages, leaf.toast_bytes) for leaf in found.leaves] == [(1, 7), (2, 0)]


def test_a_table_that_is_gone_takes_nothing(server: Any) -> None:
    assert sizes.sized(server, other(5)).bytes == 0


def test_a_lock_is_an_error_where_the_size_is_needed(server: Any) -> None:
    server.locked = {CATALOG.relation.oid}
    with pytest.raises(SourceLocked, match=r"^shop: cannot read the sizes of tables: canceling statement"):
        sizes.sized(server, UNSIZED)


def test_where_it_may_be_missing_all_are_asked_at_once_and_one_by_one_if_one_is_locked(server: Any) -> None:
    first, second = other(5), other(6)
    server.sizes = {5: (8192, 0), 6: (8192, 0)}
    assert [table.bytes for table in sizes.sized_unless_locked(server, [first, second])] == [8192, 8192]
    server.locked = {5}
    assert [table.bytes for table in sizes.sized_unless_locked(server, [first, second])] == [None, 8192]
    assert server.asked == [[5, 6], [5, 6], [5], [6]]
    assert sizes.sized_unless_locked(server, []) == []
    assert len(server.asked) == 4


def test_a_server_that_is_gone_is_another_error(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise errors.AdminShutdown("terminating connection")

    monkeypatch.setattr(server, "execute", fail)
    with pytest.raises(SourceError, match="terminating connection") as caught:
        sizes.sized_unless_locked(server, [UNSIZED])
    assert not isinstance(caught.value, SourceLocked)
