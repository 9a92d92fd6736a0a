"""Types are asked for as seldom as can be, and as often as they may change."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from kuvasz.model import PgType
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.type_catalog import TypeCatalog
from kuvasz.source.catalog.type_facts import BUILT_IN

TEXT, LSN, MOOD, GONE = 25, 3220, 16400, 16999


class Server:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[int]] = []
        self.opened = self.closed = 0
        self.mood = "mood"
        monkeypatch.setattr(conninfo, "connect", self._connect)
        monkeypatch.setattr(introspect, "load_types", self._load)

    def _connect(self, url: str) -> SimpleNamespace:
        assert url.startswith("postgresql:///")
        self.opened += 1
        return SimpleNamespace(close=self._close)

    def _close(self) -> None:
        self.closed += 1

    def _load(self, _: object, oids: Collection[int]) -> dict[int, PgType]:
        self.asked.append(set(oids))
        names = {LSN: "pg_lsn", MOOD: self.mood}
        return {oid: PgType(oid=oid, name=names[oid]) for oid in oids if oid in names}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_what_most_columns_have_is_known(server: Server) -> None:
    assert TypeCatalog(lambda: "postgresql:///shop")([TEXT])[TEXT].name == "text"
    assert (server.asked, server.opened) == ([], 0)


def test_what_is_the_same_in_every_server_is_asked_for_once(server: Server) -> None:
    types = TypeCatalog(lambda: "postgresql:///shop")
    assert types([LSN])[LSN].name == types([LSN])[LSN].name == "pg_lsn"
    assert server.asked == [{LSN}]
    assert TypeCatalog(lambda: "postgresql:///another")([TEXT, GONE]).keys() == {TEXT}
    assert server.asked[1:] == [{GONE}], "and of each source: nobody else's answer counts for it"


def test_what_may_be_altered_is_asked_for_each_time(server: Server) -> None:
    types = TypeCatalog(lambda: "postgresql:///shop")
    assert types([LSN, MOOD])[MOOD].name == "mood"
    server.mood = "temper"
    found = types([LSN, MOOD])
    assert (found[MOOD].name, found[LSN].name) == ("temper", "pg_lsn")
    assert server.asked == [{LSN, MOOD}, {MOOD}]


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


@pytest.mark.parametrize(
    ("oid", "name", "element"), [(23, "int4", None), (1007, "_int4", 23), (3807, "_jsonb", 3802)]
)
def test_a_type_and_its_array_are_known_by_their_oids(oid: int, name: str, element: int | None) -> None:
    found = BUILT_IN[oid]
    assert (found.oid, found.name) == (oid, name)
    assert (None if found.element is None else found.element.oid) == element


def test_none_is_given_by_a_server() -> None:
    assert max(BUILT_IN) < 10000
    assert all(oid == found.oid for oid, found in BUILT_IN.items())
