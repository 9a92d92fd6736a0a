from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from kuvasz.admin.api import callers
from kuvasz.admin.api.callers import Caller, Callers
from kuvasz.config.model import Role, TokenConfig
from kuvasz.config.secrets import SecretFile, SecretText

OWN = "geheim"
ANN = "ann-0123456789-ann"
BOB = "bob-0123456789-bob"


class World:
    """Callers of whom one has a token in a file, with a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "bob"
        self.file.write_text(f"{BOB}\n")
        self.told: list[set[str]] = []
        self.now = 0.0
        self.tokens = [
            TokenConfig(name="ann", role=Role.VIEWER, token=SecretText(ANN)),
            TokenConfig(name="bob", role=Role.OPERATOR, token=SecretText(SecretFile(str(self.file)))),
        ]
        self.callers = Callers(OWN, lambda: tuple(self.tokens), [self._tell], lambda: self.now)

    def _tell(self, values: Iterable[str]) -> None:
        self.told.append(set(values))

    def of(self, given: str | None) -> Caller | None:
        headers = {} if given is None else {"Authorization": given}
        return asyncio.run(self.callers.of(make_mocked_request("GET", "/", headers)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_asks_is_told_by_his_token(world: World) -> None:
    assert world.of(f"Bearer {OWN}") == Caller(name="local", role=Role.ADMIN)
    assert world.of(f"Bearer {ANN}") == Caller(name="ann", role=Role.VIEWER)
    assert world.of(f"Bearer {BOB}") == Caller(name="bob", role=Role.OPERATOR)


@pytest.mark.parametrize(
    "given", [None, "", "Bearer ", "Bearer", f"bearer {OWN}", OWN, f"Bearer {OWN}2", f"Bearer {ANN[:-1]}",
              "Bearer None"]
)  # fmt: skip
def test_nobody_is_told_by_what_is_no_token(world: World, given: str | None) -> None:
    assert world.of(given) is None


def test_another_token_in_its_file_counts_instead_and_is_hidden(world: World) -> None:
    assert world.of(f"Bearer {BOB}")
    other = "another-0123456789-bob"
    world.file.write_text(other)
    assert world.of(f"Bearer {other}") is None, "not yet"
    world.now += callers.FRESH_S
    assert world.of(f"Bearer {other}") == Caller(name="bob", role=Role.OPERATOR)
    assert world.of(f"Bearer {BOB}") is None
    assert world.told == [{ANN, BOB}, {ANN, other}]


@pytest.mark.parametrize("content", [None, "", "short", "with blanks in it 0123456789"])
def test_a_token_that_is_none_any_more_lets_nobody_in(
    world: World, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.of(f"Bearer {BOB}")
    if content is None:
        world.file.unlink()
    else:
        world.file.write_text(content)
    with caplog.at_level(logging.INFO, "kuvasz"):
        for _ in range(3):
            world.now += callers.FRESH_S
            for given in (BOB, content or "", "None"):
                assert world.of(f"Bearer {given}") is None
    assert [(vars(one)["event"], vars(one)["by"]) for one in caplog.records] == [("token_unread", "bob")], "once"
    assert not content or content not in caplog.text
    assert world.of(f"Bearer {ANN}"), "the others are let in"
    world.file.write_text(BOB)
    world.now += callers.FRESH_S
    assert world.of(f"Bearer {BOB}")


def test_a_token_that_left_the_map_counts_no_more_and_one_that_came_does_at_once(world: World) -> None:
    assert world.of(f"Bearer {ANN}")
    world.tokens = [
        TokenConfig(name="eve", role=Role.ADMIN, token=SecretText("eve-0123456789-eve")),
        TokenConfig(name="bob", role=Role.VIEWER, token=SecretText(BOB)),
    ]
    assert world.of(f"Bearer {ANN}") is None
    assert world.of("Bearer eve-0123456789-eve") == Caller(name="eve", role=Role.ADMIN)
    assert world.of(f"Bearer {BOB}") == Caller(name="bob", role=Role.VIEWER)
    world.tokens = []
    assert world.of(f"Bearer {BOB}") is None
