"""Types that can be altered are looked at, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.source.catalog import type_facts


class Server:
    def __init__(self, *rows: tuple[int, list[str]]) -> None:
        self.rows = rows
        self.asked: list[list[int]] = []

    def execute(self, _: str, parameters: tuple[list[int]]) -> Server:
        self.asked += parameters
        return self

    def fetchall(self) -> tuple[tuple[int, list[str]], ...]:
        return self.rows


@pytest.fixture(autouse=True)
def placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_facts, "place", lambda _: "shop")


def test_facts_are_those_of_each_type() -> None:
    server: Any = Server((16400, ["a", "b"]), (16401, ["c"]))
    assert type_facts.load(server, [16401, 25, 16400, 16401]) == {16400: ("a", "b"), 16401: ("c",)}
    assert server.asked == [[16400, 16401]]


def test_a_server_is_not_asked_of_types_that_come_with_it() -> None:
    server: Any = Server()
    assert type_facts.load(server, [25, 23, 1700]) == {}
    assert server.asked == []
