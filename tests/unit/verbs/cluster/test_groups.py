"""The list of groups of a log, and how one is retired."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.state.staged.ports import LogGroup
from kuvasz.verbs.cluster import groups

FOUND = [
    LogGroup(name="blue", objects=3, behind_s=61.4, lives=False),
    LogGroup(name="green", objects=0, behind_s=None, lives=True),
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "map.yaml"
    databases = [{"database": "d", "urls": [{"url": "postgresql://h/d"}], "tables": {"t": None}}]
    file.write_text(json.dumps({"databases": databases}))
    return load.load(file, {}).config


def test_they_are_listed_with_how_far_they_are_behind() -> None:
    *_, blue, green = groups.render(FOUND).splitlines()
    assert ("nobody applies it" in blue, "3" in blue, "61 s" in blue) == (True, True, True)
    assert ("applied" in green, " s" in green.strip()[-3:]) == (True, False)
    assert groups.as_json(FOUND)["groups"][0] == {
        "group": "blue", "objects": 3, "behind_seconds": 61.4, "is_applied": False,
    }  # fmt: skip
    assert groups.render([]) == "the log has no groups: one lake alone has what is staged"


def test_without_a_cluster_there_is_no_log(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.coordinator is not set"):
        groups.run(config)


def test_one_is_retired_by_who_is_sure(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    retired: list[str] = []
    monkeypatch.setattr(groups, "log_groups", lambda _: SimpleNamespace(all=lambda: FOUND, retire=retired.append))
    assert groups.run(config) == FOUND
    with pytest.raises(ConfigError, match="forgets how far its lake is") as caught:
        groups.retire(config, "blue", is_sure=False)
    assert ("add --yes" in str(caught.value), retired) == (True, [])
    assert "group blue is forgotten" in groups.retire(config, "blue", is_sure=True)
    assert retired == ["blue"]


def test_one_is_promoted_by_who_is_sure(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted: list[tuple[str, str]] = []
    made = SimpleNamespace(promote=lambda *names: promoted.append(names))
    monkeypatch.setattr(groups, "log_groups", lambda _: made)
    with pytest.raises(ConfigError, match="the first group is green then") as caught:
        groups.promote(config, "blue", "green", is_sure=False)
    assert "add --yes" in str(caught.value)
    for name in ("", "a/b"):
        with pytest.raises(ConfigError, match="must be a name without /"):
            groups.promote(config, "blue", name, is_sure=True)
    assert promoted == []
    told = groups.promote(config, "blue", "green", is_sure=True)
    assert "`group: green` and `role: apply`" in told
    assert promoted == [("blue", "green")]
