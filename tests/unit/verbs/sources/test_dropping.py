from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config.load import Loaded, load
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError
from kuvasz.verbs import cleanup, remote
from kuvasz.verbs.cleanup import Step
from kuvasz.verbs.sources import dropping

MAP = """\
databases:
- database: shop
  urls:
  - {url: "postgresql://repl:geheim@a/x", sid: a}
  - {url: "postgresql://b/x", sid: b_1}  # one
  - {url: "postgresql://c/x", sid: b_2}  # two
  tables: {items: }
"""


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources whose slots were dropped."""
    found: list[str] = []

    def reload(*_: object, **__: object) -> None:
        raise remote.NotRunning("nobody")

    def clean(source: Source) -> list[Step]:
        found.append(source.name)
        return [Step(source=source.name, what="slot", name=source.object_name, outcome="dropped")]

    monkeypatch.setattr(remote, "reload", reload)
    monkeypatch.setattr(cleanup, "clean", clean)
    return found


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return load(file, {})


def test_nothing_is_done_until_somebody_is_sure(loaded: Loaded, cleaned: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"takes 2 out of the map: shop_b_1 .*; it leaves their slots") as refused:
        dropping.run(loaded, SourceSelection(sid="b_*"), drops_slot=None, is_sure=False)
    assert "add --yes" in str(refused.value)
    for choice, why in (
        (SourceSelection(), "which source"),
        (SourceSelection(sid="x"), "the map has no source 'x'"),
        (SourceSelection(sid="*"), "'shop' would be without a source"),
    ):
        with pytest.raises(ConfigError, match=why):
            dropping.run(loaded, choice, drops_slot=None, is_sure=True)
    assert loaded.path is not None
    assert (loaded.path.read_text(), cleaned) == (MAP, [])


@pytest.mark.parametrize("drops_slot", [True, False])
def test_what_the_running_kuvasz_leaves_of_a_source_is_dropped_or_told(
    loaded: Loaded, cleaned: list[str], monkeypatch: pytest.MonkeyPatch, drops_slot: bool
) -> None:
    """It saw by itself before that the file is another one, and drops nothing then; or the server is away."""
    for pause in ("_PAUSE_S", "_AGAIN_S"):
        monkeypatch.setattr(dropping, pause, 0.0)
    seen = [{"sources": [{"source": "shop_b_1"}]}, {"sources": []}]
    monkeypatch.setattr(remote, "status", lambda _: seen.pop(0))
    monkeypatch.setattr(remote, "reload", lambda *_, **__: {})
    asked: list[str] = []

    def clean(source: Source) -> list[Step]:
        assert not seen, "it has not ended"
        asked.append(source.name)
        if source.name == "shop_b_1":
            is_busy = asked.count(source.name) == 1  # the running one drops it just now
            done = {"outcome": "left", "error": "it is in use"} if is_busy else {"outcome": "was not there"}
        else:
            done = {"outcome": "left", "error": "connection refused", "hint": "start it"}
        return [Step(source=source.name, what="slot", name=source.object_name, **done)]

    monkeypatch.setattr(cleanup, "clean", clean)
    answer = dropping.run(loaded, SourceSelection(sid="b_*"), drops_slot=drops_slot, is_sure=True)
    assert answer["is_running"]
    told = dropping.render(answer)
    assert ("shop_b_2: slot kuvasz_shop_b_2: left\n    connection refused\n    start it\n" in told) is drops_slot
    assert "shop_b_1: slot" not in told
    assert dropping.exit_code(answer) == int(drops_slot)


@pytest.mark.parametrize("drops_slot", [True, None])
def test_sources_of_a_pattern_leave(loaded: Loaded, cleaned: list[str], drops_slot: bool | None) -> None:
    answer = dropping.run(loaded, SourceSelection(sid="b_*"), drops_slot=drops_slot, is_sure=True)
    assert loaded.path is not None
    assert loaded.path.read_text() == "".join(
        line for line in MAP.splitlines(keepends=True) if "b_" not in line
    )  # fmt: skip
    assert cleaned == (["shop_b_1", "shop_b_2"] if drops_slot else [])
    assert dropping.exit_code(answer) == 0
    told = dropping.render(answer)
    assert ("SELECT pg_drop_replication_slot('kuvasz_shop_b_1')" in told) is not drops_slot
    assert told.endswith("their rows stay in kuvasz.items")
