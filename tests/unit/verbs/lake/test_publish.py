"""What the verb `publish` asks, does by itself, and prints."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, LakeError
from kuvasz.lake.iceberg import branches
from kuvasz.ports import Published
from kuvasz.verbs import remote
from kuvasz.verbs.lake import publish
from kuvasz.verify.report import Report

CONFIG = Config.model_validate({
    "lake": {"namespace": "shop", "branch": "staging"},
    "databases": [{"database": "shop", "urls": [{"url": "postgresql://eu/shop"}],
                   "tables": {"items": None, "others": None}}],
})  # fmt: skip


def silently(*_: object) -> None:
    """Nobody is told how far it is."""


DONE = {"target": "shop.items", "branch": "staging", "before": None, "after": 7}
REFUSED = {"target": "shop.others", "error": "table shop.others: it is gone", "hint": "see"}


def run() -> list[dict[str, Any]]:
    return publish.run(CONFIG, table=None, branch=None, cut="a", is_trial=True, is_forced=False)


def test_the_running_kuvasz_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    gone = {"target": "shop.others", "error": "nobody who answers has it just now", "hint": "see"}
    monkeypatch.setattr(remote, "publish", lambda _, **given: asked.append(given) or [DONE, gone])
    assert run() == [DONE, gone]
    assert asked == [{"table": None, "branch": None, "cut": "a", "is_trial": True, "is_forced": False}]


def test_what_nobody_who_answers_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that changes hands, or one of several processes that is silent; or a map that was not reloaded."""
    monkeypatch.setattr(remote, "publish", lambda *_, **__: [DONE])
    found = run()
    assert [one["target"] for one in found] == ["shop.items", "shop.others"]
    assert found[1]["error"] == "table shop.others: no running kuvasz that answers has it just now"
    assert publish.exit_code(found) == 1


def test_without_one_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise remote.NotRunning("nobody runs")

    def once(
        config: Config, fed: dict[str, list[str]], tag: str, *, is_trial: bool, is_forced: bool, session: object
    ) -> list[Any]:
        sources = {"shop.items": ["shop"], "shop.others": ["shop"]}
        assert (fed, tag, is_trial, is_forced) == (sources, "cut_a", True, False)
        error = LakeError("table shop.others: it is gone", hint="see")
        return [Published(branch="staging", before=None, after=7), ("shop.others", error)]

    monkeypatch.setattr(remote, "publish", nobody)
    monkeypatch.setattr(branches, "publish_once", once)
    assert run() == [DONE, REFUSED]


def report(target: str, source: str, **facts: Any) -> Report:
    return Report(source=source, table="public.items", target=target, **facts)


def test_tables_that_do_not_equal_their_sources_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def ask(_: Config, *, table: str | None, branch: str | None, **__: object) -> list[dict[str, Any]]:
        asked.append((table, branch))
        return [DONE | {"target": name} for name in ("shop.items", "shop.others") if table in {None, name}]

    def compared(*reports: Report) -> list[dict[str, Any]]:
        def found(_: Config, *, targets: list[str], **__: object) -> list[Report]:
            assert targets == ["shop.items", "shop.others"]
            return list(reports)

        monkeypatch.setattr(publish.verify, "reports", found)
        return publish.run(
            CONFIG, table=None, branch="staging", cut=None, is_trial=False, is_forced=False, comparing=silently
        )

    monkeypatch.setattr(remote, "publish", ask)
    equal = report("shop.others", "shop")
    assert not publish.exit_code(compared(equal, report("shop.items", "shop")))
    assert asked.pop() == (None, "staging")
    for facts, why in (
        ({"left": 3}, "3 keys differ"), ({"undecided": 2}, "2 keys could not be decided"),
        ({"error": "no answer", "error_code": 1}, "no answer"), ({"skipped": "it was not copied yet"}, "not copied"),
    ):  # fmt: skip
        refused, done = compared(equal, report("shop.items", "shop"), report("shop.items", "of_us", **facts))
        assert (refused["target"], done["target"], asked.pop()) == (
            "shop.items",
            "shop.others",
            ("shop.others", None),
        )
        assert "it is not known to equal its sources: public.items of of_us" in refused["error"]
        assert why in refused["error"]
        assert "kuvasz verify --table shop.items" in refused["hint"]
    refused, done = compared(equal)
    assert "nothing of it was compared" in refused["error"]
    assert not asked[1:]


def test_a_cut_is_not_compared() -> None:
    with pytest.raises(ConfigError, match="--verify with --cut"):
        publish.run(CONFIG, table=None, branch=None, cut="a", is_trial=True, is_forced=False, comparing=silently)


def test_what_is_printed_names_snapshots_errors_and_hints() -> None:
    lines = publish.render([DONE, REFUSED], is_trial=True).split("\n")
    assert lines[0].split("  ")[-1].strip() == "main would show"
    assert [line.split() for line in lines if line.startswith("shop.items")] == [
        ["shop.items", "staging", "nothing", "7"]
    ]
    assert lines[-1] == "hint: see"
    assert publish.exit_code([DONE, REFUSED]) == 1
    assert publish.exit_code([DONE]) == 0
