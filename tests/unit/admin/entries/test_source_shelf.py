from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.config.model import Config
from kuvasz.errors import SourceError
from kuvasz.source.catalog.inventory import Inventory
from tests.support.maps import loaded

MAP = """
databases:
- database: shop
  urls:
  - {url: "postgresql:///eu", sid: eu}
  - {url: "postgresql:///us", sid: us}
  tables: {items: }
- database: crm
  urls: [{url: "postgresql:///crm"}]
  tables: {items: {target: crm_items}}
"""


class Servers:
    """Servers that may be away."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.asked: list[str] = []

    def take(self, url: str) -> Inventory:
        name = url.rpartition("/")[2]
        self.asked.append(name)
        if name in self.away:
            raise SourceError("away")
        return Inventory(location=url, database=name, tables=(), extensions={})


def config(folder: Path) -> Config:
    return loaded(folder, MAP).config


def test_each_group_is_asked_once_by_the_first_source_that_answers(tmp_path: Path) -> None:
    servers = Servers("eu")
    shelf, map_ = SourceShelf(servers.take), config(tmp_path)

    async def run() -> None:
        assert await shelf.look(map_) == {"shop": [], "crm": []}
        assert await shelf.look(map_) == {"shop": [], "crm": []}
        assert sorted(servers.asked) == ["crm", "eu", "us"]
        await shelf.look(map_, anew=True)

    asyncio.run(run())
    assert sorted(servers.asked) == ["crm", "crm", "eu", "eu", "us", "us"]


def test_an_answer_that_nobody_thought_of_is_no_answer(tmp_path: Path) -> None:
    servers = Servers("eu", "us")

    def take(url: str) -> Inventory:
        if url.endswith("us"):
            raise TypeError("an answer without columns")
        return servers.take(url)

    assert asyncio.run(SourceShelf(take).look(config(tmp_path))) == {"crm": []}


@pytest.mark.parametrize("anew", [True, False])
def test_who_does_not_answer_is_asked_again_after_a_while_or_when_somebody_wants_it(
    tmp_path: Path, *, anew: bool
) -> None:
    """Each list would wait for a server that is down as long as a connection may take."""
    servers, now = Servers("eu", "us"), [100.0]
    shelf, map_ = SourceShelf(servers.take, lambda: now[0]), config(tmp_path)

    async def run() -> None:
        assert await shelf.look(map_) == {"crm": []}
        servers.away.clear()
        now[0] = 129.0
        assert await shelf.look(map_) == {"crm": []}
        now[0] = 129.0 if anew else 130.0
        assert await shelf.look(map_, anew=anew) == {"shop": [], "crm": []}

    asyncio.run(run())
    assert sorted(servers.asked) == [*(["crm"] if anew else []), "crm", "eu", "eu", "us"]


def test_a_group_with_other_sources_is_asked_again_and_one_that_left_is_forgotten(tmp_path: Path) -> None:
    servers = Servers()
    shelf = SourceShelf(servers.take)
    both = config(tmp_path)
    one = loaded(tmp_path, MAP.partition("- database: crm")[0].replace("/eu", "/other")).config

    async def run() -> None:
        await shelf.look(both)
        assert await shelf.look(one) == {"shop": []}
        await shelf.look(both)

    asyncio.run(run())
    assert sorted(servers.asked) == ["crm", "crm", "eu", "eu", "other"]
