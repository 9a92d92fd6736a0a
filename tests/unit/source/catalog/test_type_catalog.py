"""Types are asked for as seldom as can be, and as often as they may change."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from kuvasz.model import PgType
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect, type_catalog
from kuvasz.source.catalog.type_catalog import TypeCatalog

TEXT, MOOD, GONE = 25, 16400, 16999


class Server:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[int]] = []
        self.opened = self.closed = 0
        self.mood = "mood"
        monkeypatch.setattr(conninfo, "connect", self._connect)
        monkeypatch.setattr(introspect, "load_types", self._load)
        monkeypatch.setattr(type_catalog, "_BUILT_IN", {})

    def _connect(self, url: str) -> SimpleNamespace:
        assert url == "postgresql:///shop"
        self.opened += 1
        return SimpleNamespace(close=self._close)

    def _close(self) -> None:
        self.closed += 1

    def _load(self, _: object, oids: Collection[int]) -> dict[int, PgType]:
        self.asked.append(set(oids))
        names = {TEXT: "text", MOOD: self.mood}
        return {oid: PgType(oid=oid, name=names[oid]) for oid in oids if oid in names}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_what_is_the_same_in_every_server_is_asked_for_once(server: Server) -> None:
    types = TypeCatalog(lambda: "postgresql:///shop")
    assert types([TEXT])[TEXT].name == types([TEXT])[TEXT].name == "text"
    assert server.asked == [{TEXT}]
    another = TypeCatalog(lambda: "postgresql:///shop")
    assert another([TEXT])[TEXT].name == "text"
    assert (server.asked, server.opened) == ([{TEXT}], 1), "and another source's has no session"


def test_what_may_be_altered_is_asked_for_each_time(server: Server) -> None:
    types = TypeCatalog(lambda: "postgresql:///shop")
    assert types([TEXT, MOOD])[MOOD].name == "mood"
    server.mood = "temper"
    found = types([TEXT, MOOD])
    assert (found[MOOD].name, found[TEXT].name) == ("temper", "text")
    assert server.asked == [{TEXT, MOOD}, {MOOD}]


def test_a_type_that_is_not_there_is_left_out(server: Server) -> None:
    assert TypeCatalog(lambda: "postgresql:///shop")([GONE]) == {}


def test_one_connection_serves_many_looks_until_it_is_closed(server: Server) -> None:
    types = TypeCatalog(lambda: "postgresql:///shop")
    types.close()
    assert server.closed == 0
    for _ in range(3):
        types([MOOD])
    assert server.opened == 1
    types.close()
    types([MOOD])
    assert (server.opened, server.closed) == (2, 1)
