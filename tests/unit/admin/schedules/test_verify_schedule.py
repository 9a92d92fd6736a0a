"""Comparisons on a schedule: whose turn it is, and what becomes of one; see tests/integration as well."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin.schedules import verify_schedule
from kuvasz.admin.schedules.verify_schedule import VerificationSchedule
from kuvasz.config.model import VerificationConfig
from kuvasz.errors import LakeError, StateError
from kuvasz.state.memory import MemoryVerdicts
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.state.verdicts.verdict_documents import VerdictDocuments
from kuvasz.state.verdicts.verdicts import Verdicts
from kuvasz.verify.report import Report
from tests.support.admin_world import AdminWorld
from tests.support.snapshots import SOURCE

ITEMS, OTHERS, STRAYS = ("shop.items", "shop_eu"), ("shop.others", "shop_eu"), ("shop.items", "")


class Scene:
    """An application whose tables stream, and comparisons that find what they are told to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.now = 100_000.0
        self.app = app = AdminWorld(folder).app
        app.verdicts = Verdicts(MemoryVerdicts())
        app.phase = "running"
        for target, source in (ITEMS, OTHERS):
            app.states.add(target, source, target.replace("shop.", "public."))
            app.states.note(target, source, state=State.STREAMING)
        self.set(**options)
        self.compared: list[tuple[str, str]] = []
        self.finds: dict[tuple[str, str], Report | Exception] = {}
        self.source_state = "streaming"
        view = app.view
        monkeypatch.setattr(app, "view", lambda: _with(view(), self.source_state))
        monkeypatch.setattr(type(app.lake), "session", "a session", raising=False)
        monkeypatch.setattr(verify_schedule, "ReadOnlyLake", _Lake)
        self.schedule = VerificationSchedule(app, lambda: self.now)
        monkeypatch.setattr(self.schedule, "_report", self._report)

    def set(self, **options: Any) -> None:
        verify = VerificationConfig.model_validate({"every": "1h", "share": 50, **options})
        self.app.config = self.app.config.model_copy(update={"verify": verify})

    def _report(self, _lake: object, _config: object, key: tuple[str, str]) -> Report:
        self.compared.append(key)
        found = self.finds.get(key, Report(source=key[1], table="", target=key[0], lsn="0/1", source_rows=7))
        if isinstance(found, Exception):
            raise found
        return found

    def look(self, times: int = 1) -> list[tuple[str, str]]:
        """Look some times; return what was compared."""
        before = len(self.compared)
        for _ in range(times):
            asyncio.run(self.schedule.look())
        return self.compared[before:]


class _Lake:
    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> _Lake:
        return self

    def __exit__(self, *_: object) -> None: ...


def _with(view: Any, state: str) -> Any:
    return dataclasses.replace(view, sources=(dataclasses.replace(SOURCE, state=state),))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_each_table_has_its_turn_once_and_again_when_it_is_due(scene: Scene) -> None:
    assert set(scene.look(6)) == {ITEMS, OTHERS, STRAYS, ("shop.others", "")}
    assert len(scene.compared) == 4
    assert scene.app.verdicts.all()[ITEMS] == Verdict(at=100_000, tried_at=100_000, lsn="0/1", rows=7)
    scene.now += 3599
    assert scene.look() == []
    scene.now += 1
    assert len(scene.look(6)) == 4


def test_nothing_is_compared_that_nobody_asked_for(scene: Scene) -> None:
    scene.set(every=None)
    assert scene.look() == []
    scene.set(between="09:00-09:01")
    assert scene.look() == []
    scene.set()
    scene.app.phase = "stopping"
    assert scene.look() == []


def test_a_table_that_does_not_follow_waits_and_keeps_nobody(scene: Scene) -> None:
    scene.app.states.note(*ITEMS, state=State.COPYING)
    assert set(scene.look(4)) == {OTHERS, ("shop.others", "")}
    scene.app.states.note(*ITEMS, state=State.STREAMING)
    number = scene.app.progress.hold("shop_eu", "shop.items")
    assert set(scene.look(4)) == {STRAYS}, "what is confirmed says nothing while something holds the source"
    scene.app.progress.release("shop_eu", "shop.items", number)
    assert scene.look(4) == [ITEMS]


def test_what_differs_is_told_as_an_error_without_any_row(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.finds[ITEMS] = Report(source="shop_eu", table="items", target="shop.items", lsn="0/9", source_rows=7,
                                missing=2, changed=1, mended=1, left=2)  # fmt: skip
    with caplog.at_level(logging.INFO):
        scene.look(4)
    (told,) = [one for one in caplog.records if getattr(one, "event", "") == "table_differs"]
    assert (told.levelno, told.differences, told.left) == (logging.ERROR, {"missing": 2, "changed": 1}, 2)  # type: ignore[attr-defined]
    assert scene.app.verdicts.all()[ITEMS].left == 2
    assert sum(getattr(one, "event", "") == "table_verified" for one in caplog.records) == 3


@pytest.mark.parametrize("failure", ["report", "lake", "bug"])
def test_one_that_comes_to_no_end_is_told_once_and_tried_again(
    scene: Scene, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.look(4)
    whole = scene.app.verdicts.all()[ITEMS]
    scene.finds[ITEMS] = {
        "report": Report(source="shop_eu", table="items", target="shop.items", error="gone"),
        "lake": LakeError("gone"), "bug": ValueError("gone"),
    }[failure]  # fmt: skip
    for _ in range(3):
        scene.now += 3600
        assert ITEMS in scene.look(4)
    found = scene.app.verdicts.all()[ITEMS]
    assert (found.at, found.rows, found.tried_at) == (whole.at, whole.rows, scene.now), "the last that ended"
    assert "gone" in found.error
    assert sum(getattr(one, "event", "") == "verify_failed" for one in caplog.records) == 1
    del scene.finds[ITEMS]
    scene.now += 3600
    scene.look(4)
    assert scene.app.verdicts.all()[ITEMS] == Verdict(at=scene.now, tried_at=scene.now, lsn="0/1", rows=7)


def test_a_table_that_the_map_leaves_out_has_not_failed_and_one_that_is_not_copied_has(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    left_out = Report(source="shop_eu", table="items", target="shop.items", skipped="initial: skip")
    scene.finds = {ITEMS: left_out, OTHERS: dataclasses.replace(left_out, skipped="not copied yet", error_code=1)}
    assert len(scene.look(4)) == 4, "nobody waits for it"
    found = scene.app.verdicts.all()
    assert [(found[key].error, found[key].is_failing) for key in (ITEMS, OTHERS)] == [
        ("initial: skip", False), ("not copied yet", True)
    ]  # fmt: skip
    assert [one.table for one in caplog.records if getattr(one, "event", "") == "verify_failed"] == ["shop.others"]  # type: ignore[attr-defined]


def test_keys_that_could_not_be_decided_are_no_proof_and_keep_nobody_waiting(scene: Scene) -> None:
    """An UPDATE that leaves out a large value says not what the row is: a wrong one there would never be found."""
    scene.finds[ITEMS] = Report(source="shop_eu", table="items", target="shop.items", lsn="0/9", source_rows=7,
                                undecided=3)  # fmt: skip
    assert len(scene.look(4)) == 4
    found = scene.app.verdicts.all()[ITEMS]
    assert (found.at, found.is_open, found.is_failing) == (scene.now, True, False)
    assert found.error == "3 keys change all the time and could not be decided"
    scene.finds.clear()
    scene.now += 3600
    scene.look(4)
    assert not scene.app.verdicts.all()[ITEMS].is_open


def test_tables_that_left_are_forgotten_but_not_while_their_source_begins(scene: Scene) -> None:
    gone = ("shop.gone", "shop_eu")
    scene.app.verdicts.put(gone, Verdict(at=scene.now))
    scene.source_state = "connecting"
    assert scene.look() == []
    assert gone in scene.app.verdicts.all()
    scene.source_state = "streaming"
    scene.look()
    assert gone not in scene.app.verdicts.all()


def test_the_pause_behind_a_comparison_is_its_share(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {False: 0.0, True: 30.0}
    monkeypatch.setattr(verify_schedule, "time", SimpleNamespace(monotonic=lambda: seconds[bool(scene.compared)]))
    assert asyncio.run(scene.schedule.look()) == 30.0
    scene.compared.clear()
    scene.look(3)
    scene.compared.clear()
    assert asyncio.run(scene.schedule.look()) == 1.0


def test_a_comparison_ends_with_kuvasz(scene: Scene) -> None:
    scene.schedule._go_on("shop_eu", "shop.items", "sum up the lake", 1, 2)
    scene.app.phase = "stopping"
    with pytest.raises(verify_schedule._Closing):
        scene.schedule._go_on()


def test_what_is_known_to_differ_is_asked_until_it_can_be_read_and_that_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A difference that was found before a restart is told on, whatever the coordinator did at that moment."""
    differs, answers = Verdict(at=scene.now, tried_at=scene.now, differences=3, left=3), [StateError("away")] * 2

    class Documents:
        def all(self) -> dict[str, object]:
            if answers:
                raise answers.pop()
            return {json.dumps(ITEMS): differs.as_json()}

    documents: Any = Documents()
    scene.app.verdicts = Verdicts(VerdictDocuments(documents))
    monkeypatch.setattr(verify_schedule, "_LOOK_S", 0.01)

    async def run() -> None:
        task = asyncio.create_task(scene.schedule.run())
        while not scene.app.verdicts.all():
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 20))
    assert scene.app.verdicts.all()[ITEMS] == differs
    assert answers == []
    assert [record.error for record in caplog.records].count("away") == 1  # type: ignore[attr-defined]
