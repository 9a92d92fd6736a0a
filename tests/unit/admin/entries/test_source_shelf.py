from __future__ import annotations

import asyncio
from pathlib import Path

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


def test_who_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    servers = Servers("eu", "us")
    shelf, map_ = SourceShelf(servers.take), config(tmp_path)

    async def run() -> None:
        assert await shelf.look(map_) == {"crm": []}
        servers.away.clear()
        assert await shelf.look(map_) == {"shop": [], "crm": []}

    asyncio.run(run())
    assert sorted(servers.asked) == ["crm", "eu", "eu", "us"]


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
