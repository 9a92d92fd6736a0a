"""A table's Java object is loaded anew before what it was lent ends, and no reader's view moves by that."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from kuvasz.errors import LakeError
from kuvasz.lake.files.store_access import StoreAccess
from kuvasz.lake.jvm import vended_table
from kuvasz.lake.jvm.table_handle import TableHandle
from kuvasz.lake.jvm.vended_table import VendedTable

LOCATION = "s3://lake/shop/items"


class Java:
    """Iceberg's table, as far as it is asked."""

    def __init__(self, number: int, life_s: float) -> None:
        self.number = number
        self.refreshed = 0
        ends = str(int((time.time() + life_s) * 1000))
        self._lent = {"s3.session-token": f"t{number}", "s3.session-token-expires-at-ms": ends}

    def location(self) -> str:
        return LOCATION

    def refresh(self) -> None:
        self.refreshed += 1

    def operations(self) -> Any:
        return SimpleNamespace(current=lambda: f"metadata {self.number}")

    def io(self) -> Any:
        def credentials() -> Any:
            raise Py4JError("Method credentials([]) does not exist")

        return SimpleNamespace(properties=lambda: self._lent, credentials=credentials, number=self.number)


JVM: Any = SimpleNamespace(
    org=SimpleNamespace(
        apache=SimpleNamespace(
            iceberg=SimpleNamespace(
                util=SimpleNamespace(
                    JsonUtil=SimpleNamespace(mapper=lambda: SimpleNamespace(writeValueAsString=json.dumps))
                ),
                StaticTableOperations=lambda metadata, io: (metadata, io.number),
                BaseTable=lambda operations, name: (*operations, name),
            )
        )
    )
)


class World:
    """A table that is loaded again and again, each time with a life of its own."""

    def __init__(self, *lives_s: float) -> None:
        self._lives = iter(lives_s)
        self.loads = self.looks = 0
        self.access = StoreAccess({}, {})
        first = self.load()
        credentials: Any = SimpleNamespace(settle=self.settle)
        vended = VendedTable(JVM, first, "shop.items", self.load, self.access, credentials)
        classes: Any = None
        self.handle = TableHandle(classes, first, "shop.items", vended)

    def settle(self) -> None:
        self.looks += 1

    def load(self) -> Java:
        self.loads += 1
        return Java(self.loads, next(self._lives))


def test_what_lives_is_kept() -> None:
    world = World(100.0)
    world.handle.renew()
    assert world.handle.to_read() is world.handle.java
    assert world.loads == 1
    assert world.looks == 2, "what the catalog is asked with is looked at each time"


def test_what_ends_is_loaded_anew_and_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(100.0, 300.0)
    later = time.time() + 60.0
    monkeypatch.setattr(time, "time", lambda: later)
    world.handle.renew()
    assert (world.handle.java.number, world.handle.java.refreshed) == (2, 1)
    assert world.access.at(LOCATION)["s3.session-token"] == "t2"
    assert world.loads == 2


def test_a_reader_sees_what_it_saw_with_credentials_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(100.0, 300.0)
    later = time.time() + 60.0
    monkeypatch.setattr(time, "time", lambda: later)
    assert world.access.at(LOCATION)["s3.session-token"] == "t2"  # who writes files has it loaded, too
    assert world.handle.to_read() == ("metadata 1", 2, "shop.items")
    assert world.handle.java.number == 1


def test_what_fails_is_loaded_anew_though_it_should_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vended_table, "_DOUBT_S", 0.0)
    world = World(100.0, 100.0)
    with pytest.raises(LakeError), world.handle.asking():
        raise LakeError("403")
    world.handle.renew()
    assert world.loads == 2
    world.handle.renew()
    assert world.loads == 2
