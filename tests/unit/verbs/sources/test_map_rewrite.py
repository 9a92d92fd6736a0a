from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.load import Loaded, load
from kuvasz.config.written.map_edit import Append, Drop
from kuvasz.errors import ConfigError
from kuvasz.verbs import remote
from kuvasz.verbs.sources import map_rewrite
from kuvasz.verbs.sources.map_rewrite import MapRewrite

MAP = """\
databases:  # ours
- database: shop
  urls: [{url: "postgresql://a/x", sid: a}]
  tables: {items: }  # all
"""

ADDED = [Append(path=("databases", 0, "urls"), value={"url": "postgresql://b/x", "sid": "b"})]
AFTER = MAP.replace("sid: a}]", 'sid: a}, {url: "postgresql://b/x", sid: b}]')


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return load(file, {})


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Exception | None) -> list[dict[str, Any]]:
    """Have a running kuvasz answer so, one after the other."""
    asked: list[dict[str, Any]] = []
    left = list(answers)

    def reload(_: object, **given: Any) -> dict[str, Any]:
        asked.append(given)
        if (answer := left.pop(0)) is not None:
            raise answer
        return {}

    monkeypatch.setattr(remote, "reload", reload)
    monkeypatch.setattr(map_rewrite, "_PAUSE_S", 0.0)
    return asked


def test_where_no_kuvasz_answers_the_file_is_changed(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, remote.NotRunning("nobody"))
    assert loaded.path is not None
    assert not MapRewrite(loaded, ADDED).take_over()
    assert loaded.path.read_text() == AFTER
    assert loaded.path.with_name("map.yaml.before").read_text() == MAP
    assert asked == [{"is_trial": True}]


def test_the_running_kuvasz_goes_by_it_when_it_can(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, None, remote.BusyMap("the one before"), None)
    assert MapRewrite(loaded, ADDED).take_over(drop_removed=True)
    assert asked[-1] == {"drop_removed": True}
    assert len(asked) == 3


def test_what_it_refuses_is_taken_back(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, None, remote.Refused("that needs a restart"))
    with pytest.raises(remote.Refused):
        MapRewrite(loaded, ADDED).take_over()
    assert loaded.path is not None
    assert loaded.path.read_text() == MAP


def test_a_map_that_would_be_faulty_or_is_from_no_file_is_refused(loaded: Loaded) -> None:
    with pytest.raises(ConfigError, match="urls"):
        MapRewrite(loaded, [Drop(path=("databases", 0, "urls"))])
    assert loaded.path is not None
    databases = '[{database: shop, urls: [{url: "postgresql://a/x"}], tables: {items: }}]'
    with pytest.raises(ConfigError, match="`databases` is not from the map's file"):
        MapRewrite(load(loaded.path, {}, {"databases": databases}), ADDED)
