"""What is answered to who wants main to show branches."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.ports import Published
from kuvasz.state.tables import State
from tests.support.writable_world import WritableWorld


class Branches:
    """Says of each table what it is told to say."""

    def __init__(self) -> None:
        self.said: dict[str, Published | LakeError] = {
            "shop.items": Published(branch="staging", before=1, after=2),
            "shop.others": LakeError("table shop.others: main has snapshot 1", hint="look at it"),
        }
        self.asked: list[tuple[str, str | None, bool]] = []

    def publish(self, target: str, tag: str | None = None, *, is_trial: bool = False) -> Published:
        self.asked.append((target, tag, is_trial))
        said = self.said[target]
        if isinstance(said, LakeError):
            raise said
        return said


@pytest.fixture
def world(tmp_path: Path) -> WritableWorld:
    made = WritableWorld(tmp_path)
    app: Any = made.app
    app.lake.branches = Branches()
    for state in app.states.snapshot():
        app.states.set(state.target, state.source, State.STREAMING)
    return made


DONE = {"target": "shop.items", "branch": "staging", "before": 1, "after": 2}
REFUSED = {"target": "shop.others", "error": "table shop.others: main has snapshot 1", "hint": "look at it"}


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    records = [vars(record) for record in caplog.records if vars(record).get("event") == "published"]
    return [tuple(one[name] for name in ("table", "branch", "snapshot", "snapshot_before", "by")) for one in records]


def test_each_table_is_told_apart_and_what_was_done_is_logged(
    world: WritableWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kuvasz"):
        assert world.ask("/api/publish", body={"table": "shop.*"}) == (200, {"tables": [DONE, REFUSED]})
    assert [one[:4] for one in told(caplog)] == [("shop.items", "staging", 2, 1)]


def test_a_trial_is_one_and_says_nothing_to_the_log(world: WritableWorld, caplog: pytest.LogCaptureFixture) -> None:
    app: Any = world.app
    with caplog.at_level(logging.INFO, "kuvasz"):
        answer = world.ask("/api/publish", body={"table": "items", "dry_run": True})
    assert answer == (200, {"tables": [DONE]})
    assert (app.lake.branches.asked, told(caplog)) == ([("shop.items", None, True)], [])


@pytest.mark.parametrize("state", [State.NEW, State.COPYING, State.ERROR])
def test_a_table_that_lacks_a_source_is_published_by_force_alone(world: WritableWorld, state: State) -> None:
    app: Any = world.app
    app.states.set("shop.items", "shop_us", state)
    (one,) = world.ask("/api/publish", body={"table": "items"})[1]["tables"]
    assert one["error"] == f"table shop.items: not all of its sources are in it: shop_us is {state.value}"
    assert "kuvasz publish --force" in one["hint"]  # as the hint says
    assert world.ask("/api/publish", body={"table": "items", "force": True}) == (200, {"tables": [DONE]})


@pytest.mark.parametrize("cut", ["release", "cut_release"])
def test_a_cut_had_all_sources_whatever_is_now(world: WritableWorld, cut: str) -> None:
    app: Any = world.app
    app.states.set("shop.items", "shop_us", State.ERROR)
    assert world.ask("/api/publish", body={"table": "items", "cut": cut}) == (200, {"tables": [DONE]})
    assert app.lake.branches.asked == [("shop.items", "cut_release", False)]


def test_a_map_without_branches_has_nothing_to_publish(world: WritableWorld) -> None:
    status, answer = world.ask("/api/publish")
    assert (status, answer["error"]) == (404, "no such table of the map is written on another branch than main")
