"""Erasures asked for by requests: who may, what is said before, and what is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.erasures.erasure_book import ErasureBook, ErasureOrder
from kuvasz.config.load import Loaded
from kuvasz.errors import ConfigError
from kuvasz.verbs.served.looks import LOOKS
from tests.support.writable_world import WritableWorld

SURE = {"sid": "us", "sure": True}


class World(WritableWorld):
    """Notes erasures, and how often the application was told to end."""

    def __init__(self, folder: Path, *, is_writable: bool = True) -> None:
        super().__init__(folder, is_writable=is_writable)
        self.looks = dict(LOOKS)
        self.erasures = ErasureBook(folder / "state")
        self.stops = 0
        app: Any = self.app
        app.stop = self._stop

    def _stop(self) -> None:
        self.stops += 1


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_is_sure_has_it_noted_and_kuvasz_end_for_it(world: World) -> None:
    assert world.erasures is not None
    status, refused = world.ask("/api/erasure", body={"sid": "us"})
    assert (status, refused["hint"]) == (409, "send `sure: true` if that is meant")
    assert refused["error"] == (
        "source erase takes shop_us out of the map with slot and publication, and removes all rows of source 'us' of"
        " shop for good, with all older snapshots, from: shop.items, shop.others"
    )
    assert (world.stops, world.erasures.due()) == (0, [])
    status, noted = world.ask("/api/erasure", body={**SURE, "by": "ann"})
    assert (status, noted["state"], noted["sid"], noted["by"], world.stops) == (202, "waiting", "us", "ann", 1)
    assert world.ask("/api/erasure", method="GET") == (200, [noted])
    assert world.ask(f"/api/erasure/{noted['id']}", method="GET") == (200, noted)
    assert world.ask("/api/erasure/x", method="GET")[0] == 404
    assert world.erasures.begin(noted["id"]) == ErasureOrder(sid="us")
    assert "us1/shop" in world.text, "the source leaves the map when its rows are erased"


def test_what_is_not_there_is_refused(world: World) -> None:
    assert world.ask("/api/erasure", body={"sure": True})[0] == 400
    status, refused = world.ask("/api/erasure", body={**SURE, "sid": "u*"})
    assert (status, refused["error"]) == (409, "kuvasz source erase: which source?")
    assert world.stops == 0


def test_a_row_is_asked_for_by_its_key(world: World) -> None:
    assert world.erasures is not None
    asked: list[Any] = []

    def look(_: Loaded, query: Any) -> Any:
        asked.append(dict(query))
        if "key" not in query or not query["key"]:
            raise ConfigError("a row needs its table and its key", hint="name both")
        return {"would": "one row", "leaving": []}

    world.looks["erase"] = look
    assert world.ask("/api/erasure", body={"table": "items", "sure": True})[0] == 409
    status, noted = world.ask("/api/erasure", body={"table": "items", "key": ["a=4711"], "sid": "us", "sure": True})
    assert (status, "4711" in str(noted)) == (202, False)
    switches = {"with_tags": (False,), "with_unclear": (False,)}
    assert asked[-1] == {"sid": ("us",), "table": ("items",), "key": ("a=4711",), **switches}
    assert world.erasures.begin(noted["id"]).key == ("a=4711",)


def test_a_source_leaves_no_map_that_is_read_only(tmp_path: Path) -> None:
    world = World(tmp_path, is_writable=False)
    assert world.ask("/api/erasure", body=SURE)[0] == 405
    assert world.ask("/api/erasure", body={"sid": "gone", "database": "shop", "sure": True})[0] == 202, (
        "it has left it"
    )
    assert world.stops == 1


def test_who_carries_none_out_says_so(world: World) -> None:
    world.erasures = None
    status, refused = world.ask("/api/erasure", body=SURE)
    assert (status, refused["hint"]) == (409, "stop it, and use `kuvasz source erase`")
    assert world.ask("/api/erasure", method="GET") == (200, [])


def test_it_needs_the_token_of_an_admin(world: World) -> None:
    assert world.ask("/api/erasure", body=SURE, token=False)[0] == 401
    assert world.ask("/api/erasure", method="GET", token=False)[0] == 401
    assert world.stops == 0
