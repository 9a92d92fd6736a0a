"""kuvasz in a program of one's own: its thread, its ends and its errors; the application is a stand-in."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kuvasz
from kuvasz.errors import ConfigError, KuvaszError, LakeError, MapMismatch, SlotLost, StateTaken
from kuvasz.own_thread import THREAD_NAME, in_thread
from kuvasz.state.memory import MemoryFeeds, MemoryVerdicts
from kuvasz.state.store import state_of
from kuvasz.state.verdicts.verdicts import Verdicts
from kuvasz.sync.pattern_tables import PatternTables
from kuvasz.sync.rules.map_difference import difference
from kuvasz.verbs import replicate as replicator
from kuvasz.verbs.replicate import Replicator
from tests.support.waiting import wait_until

MAP = {
    "lake": {"namespace": "shop"},
    "databases": [{"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": {"key": ["x"]}}}],
}


class StandIn:
    """An application that runs until told to stop."""

    error: BaseException | None = None
    late: threading.Event | None = None

    def __init__(self, config: Any) -> None:
        self.config, self.phase = config, "starting"
        self.sources: tuple[Any, ...] = ()
        self.receipts = SimpleNamespace(observe=lambda _: None)
        self.lake = SimpleNamespace(about=SimpleNamespace(namespace=None), session=None)
        self.verdicts = Verdicts(MemoryVerdicts())
        self.patterns = PatternTables(MemoryFeeds())
        self.asked_to_catch_up = False
        self.faults: tuple[KuvaszError, ...] = ()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    def difference(self, config: Any) -> Any:
        return difference(self.config, config, {})

    def refuse_if_changing(self) -> None:
        pass

    def ask_lake(self, _: Any) -> None:
        pass

    def take_over(self, found: Any, *, may_drop: bool | None) -> None:
        assert may_drop is None, "a program counts as a person: the map says so"
        self.config = found.config

    async def run(self, *, until_caught_up: bool) -> int:
        if self.error is not None:
            raise self.error
        self.phase = "running"
        if not until_caught_up:
            await self._stop.wait()
        if self.late is not None:
            in_thread(self.late.wait)
        self.faults = (SlotLost("eu: its slot is gone", hint="copy it again"),) if until_caught_up else ()
        return 5 if until_caught_up else 0

    def view(self) -> Any:
        return SimpleNamespace(phase=self.phase, sources=(), tables=())


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicator:
    monkeypatch.setattr(replicator, "App", StandIn)
    monkeypatch.setattr(StandIn, "error", None)
    monkeypatch.setattr(StandIn, "late", None)
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps({**MAP, "server": {"address": None}, "pipeline": {"state": str(tmp_path / "state")}}))
    return Replicator(file)


def is_owned(made: Replicator) -> bool:
    owner = state_of(made._loaded.config).own("tests")
    try:
        owner.take(0)  # type: ignore[call-arg] # a folder's has a patience
    except StateTaken:
        return True
    owner.give_back()
    return False


def test_it_runs_from_start_to_stop_and_owns_its_folder_meanwhile(made: Replicator) -> None:
    assert not made.is_running
    with made:
        assert made.is_running
        assert is_owned(made)
        assert not made.wait(0.01)
    assert not made.is_running
    assert made.stop() == 0, "again"
    assert not is_owned(made)
    made.start()  # a second life
    assert made.stop() == 0


def test_a_run_until_it_has_caught_up_returns_the_exit_code(made: Replicator) -> None:
    assert made.faults == []
    assert made.run(until_caught_up=True) == 5
    assert made.faults == ["eu: its slot is gone\nhint: copy it again"]
    made.start()
    assert made.stop() == 0
    assert made.faults == [], "of its last life"


@pytest.mark.parametrize(
    "error", [LakeError("no answer"), ExceptionGroup("", [LakeError("no answer")])], ids=["alone", "in a group"]
)
def test_what_ends_it_is_raised(made: Replicator, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(StandIn, "error", error)
    with pytest.raises(LakeError, match="no answer"):
        made.start()
    with pytest.raises(LakeError):
        made.stop()
    assert not is_owned(made)
    monkeypatch.setattr(StandIn, "error", None)
    assert made.run(until_caught_up=True) == 5


def test_what_does_not_fit_has_its_place_in_the_map(made: Replicator, monkeypatch: pytest.MonkeyPatch) -> None:
    misfit = MapMismatch("there is no column x", database="shop", table="items", option="key")
    monkeypatch.setattr(StandIn, "error", ExceptionGroup("", [misfit]))
    with pytest.raises(ConfigError, match=r"map\.yaml:.*there is no column x"):
        made.run()


def test_one_runs_at_a_time_in_a_process(made: Replicator, tmp_path: Path) -> None:
    other = Replicator(tmp_path / "map.yaml", {"pipeline.state": str(tmp_path / "another")})
    with made, pytest.raises(StateTaken, match="a replicator runs in this process already"):
        other.start()
    assert other.run(until_caught_up=True) == 5


def test_who_has_not_ended_owns_the_folder_on(made: Replicator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicator, "_ENDING_S", 0.1)
    monkeypatch.setattr(StandIn, "late", late := threading.Event())
    assert made.run(until_caught_up=True) == 5
    assert is_owned(made), "a thread may still write"
    late.set()
    assert made.stop() == 5, "once more"
    wait_until(lambda: all(thread.name != THREAD_NAME for thread in threading.enumerate()), "it ends")


def test_who_ends_by_himself_meanwhile_is_stopped_and_has_no_status(
    made: Replicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads are waited for when the loop is closed already."""
    monkeypatch.setattr(StandIn, "late", late := threading.Event())
    made.start(until_caught_up=True)
    wait_until(lambda: made._loop is not None and made._loop.is_closed(), "the loop is closed")
    assert made.is_running
    with pytest.raises(ConfigError, match="does not run"):
        made.status()
    threading.Timer(0.2, late.set).start()
    assert made.stop() == 5


def test_who_does_not_run_has_no_status(made: Replicator) -> None:
    with pytest.raises(ConfigError, match="does not run"):
        made.status()


def test_it_is_found_where_one_looks_for_it() -> None:
    assert kuvasz.Replicator is Replicator
    with pytest.raises(AttributeError, match="module 'kuvasz' has no attribute 'Streamer'"):
        kuvasz.Streamer  # type: ignore[attr-defined] # noqa: B018


def test_its_map_is_live_and_that_of_its_next_life(made: Replicator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not run"):
        made.reload()
    file = tmp_path / "map.yaml"
    with made:
        file.write_text(file.read_text().replace('"items"', '"others"'))
        (changed,) = made.reload()["changed"]
        assert (changed["source"], changed["added"], changed["removed"]) == ("shop", ["others"], ["items"])
        file.write_text("databases: [")
        with pytest.raises(ConfigError):
            made.reload()
    assert list(made._loaded.config.databases[0].tables) == ["others"]
