"""Cuts as they are asked for by HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.worker.cuts import LakeCut
from tests.support.admin_world import AdminWorld

TOKEN = "a-token-of-an-operator"
TOKENS = [{"name": "an operator", "role": "operator", "token": TOKEN}]


def ask(world: AdminWorld, **body: Any) -> tuple[int, dict[str, Any]]:
    async def client(session: aiohttp.ClientSession, url: str) -> tuple[int, dict[str, Any]]:
        async with session.post(f"{url}/api/cut", json=body, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            return answer.status, await answer.json()

    return world.live(client)


class Made:
    """Makes cuts without a lake."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str], float]] = []

    async def make(self, tag: str, sources: list[str], keep_s: float) -> LakeCut:
        self.asked.append((tag, sources, keep_s))
        return LakeCut(tag=tag, lsns={"shop_eu": 0x208}, snapshots={"shop.items": 7, "shop.others": None})


def test_a_cut_is_told_with_its_lsns_and_snapshots(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path, tokens=TOKENS)
    world.app.cuts = made = Made()  # type: ignore[assignment]
    assert ask(world, name="month-end", keep="35d", database="shop") == (200, {
        "name": "month-end", "tag": "cut_month-end", "lsns": {"shop_eu": "0/208"},
        "snapshots": {"shop.items": 7, "shop.others": None},
    })  # fmt: skip
    assert made.asked == [("cut_month-end", ["shop_eu"], 35 * 86_400)]
    status, found = ask(world)
    assert (status, found["tag"][:6], found["tag"][-1], made.asked[1][2]) == (200, "cut_20", "Z", 86_400)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"name": "a b"}, 400, "name 'a b': not the name of a cut"),
        ({"keep": "long"}, 400, "keep: must be a duration such as 500ms, 1s, 5m, 1h or 1d, not 'long'"),
        ({"database": "crm"}, 404, "the map has no database 'crm'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, body: dict[str, Any], status: int, error: str) -> None:
    found = ask(AdminWorld(tmp_path, tokens=TOKENS), **body)
    assert (found[0], found[1]["error"]) == (status, error)


def test_a_table_that_does_not_stream_is_a_reason(tmp_path: Path) -> None:
    world = AdminWorld(tmp_path, tokens=TOKENS)
    status, found = ask(world)
    assert (status, found["error"]) == (409, "source shop_eu, table shop.items: it is new")
