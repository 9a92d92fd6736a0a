"""The pre-flight of a source that does not answer, and what one that does is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import ConfigError, SourceError
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.check import preflight
from kuvasz.source.check.preflight import check_source

ITEMS = TableName(schema="public", name="items")


def test_a_source_that_does_not_answer_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise SourceError("shop: nothing listens there", hint="start it")

    monkeypatch.setattr(conninfo, "connect", refuse)
    (found,) = check_source("postgresql://u:geheim@db:1/shop", "shop", "eu", [ITEMS])
    assert (found.source, found.check, found.ok, found.fix) == ("kuvasz_shop_eu", "reachable", False, "start it")
    assert "geheim" not in repr(found)


def test_one_that_does_is_looked_at_with_its_tables_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    connection = SimpleNamespace(close=lambda: done.append("closed"))
    monkeypatch.setattr(conninfo, "connect", lambda _: connection)
    server = SimpleNamespace(run=lambda: done.append("server"), rights="rights", is_primary=False)
    monkeypatch.setattr(preflight, "ServerCheck", lambda *_, old_transaction_s, wanted: server)

    def tables(_: object, given: object, rights: str, *, is_primary: bool, is_heard: bool) -> Any:
        assert (given, rights, is_primary, is_heard) == (connection, "rights", False, False)
        return SimpleNamespace(run=lambda *named: done.append(named))

    monkeypatch.setattr(preflight, "TableCheck", tables)
    (found,) = check_source("postgresql:///shop", "shop", None, [ITEMS], inserts_do=[ITEMS])
    assert (found.check, found.ok) == ("reachable", True)
    assert done == ["server", ([ITEMS], [ITEMS], None), "closed"]


def test_a_url_that_cannot_be_read_is_the_maps_fault() -> None:
    with pytest.raises(ConfigError):
        check_source("postgresql://[", "shop", None, [])
