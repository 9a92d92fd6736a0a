from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, LakeError
from kuvasz.ports import Upkeep
from kuvasz.verbs import maintain, remote

DONE = Upkeep(
    target="shop.items", files=12, bytes=3 << 20, rows=1200, dead_rows=30, delete_files=2, snapshots=None, rewrites=1,
    last_at=None, next_at=None, changed_bytes=1024, rewritten_bytes=2048,
)  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    tables = {"items": None, "billing.prices": {"target": "costs"}}
    file = tmp_path / "map.yaml"
    document = {"lake": {"namespace": "shop"}, "databases": [{"database": "shop", "urls": urls, "tables": tables}]}
    file.write_text(json.dumps(document))
    return load(file, {}).config


@pytest.mark.parametrize(
    ("table", "targets"),
    [
        (None, ["shop.items", "shop.costs"]),
        ("items", ["shop.items"]),
        ("public.items", ["shop.items"]),
        ("shop.costs", ["shop.costs"]),
        ("billing.prices", ["shop.costs"]),
    ],
)
def test_each_target_is_looked_after_once(
    config: Config, monkeypatch: pytest.MonkeyPatch, table: str | None, targets: list[str]
) -> None:
    asked: list[Any] = []

    def answer(*given: object, **named: object) -> list[dict[str, Any]]:
        asked.append((given[1], named))
        return [{"target": "shop.items", "error": None}]

    monkeypatch.setattr(remote, "maintain", answer)
    assert maintain.run(config, table, full=True) == [{"target": "shop.items", "error": None}]
    assert asked == [(targets, {"full": True})]


def test_an_unknown_table_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="the map has no table 'prices'"):
        maintain.run(config, "prices", full=False)


@pytest.mark.parametrize("error", [remote.NotRunning("nobody"), ConfigError("server.address is null")])
def test_where_nobody_runs_it_is_done_here(config: Config, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(remote, "maintain", refuse)
    monkeypatch.setattr(maintain.run_once, "maintain", lambda *_, **__: [DONE, ("shop.costs", LakeError("no room"))])
    first, second = maintain.run(config, None, full=False)
    assert (first["target"], first["files"], first["error"]) == ("shop.items", 12, None)
    assert second == {"target": "shop.costs", "error": "no room"}
    assert maintain.exit_code([first]) == 0
    assert maintain.exit_code([first, second]) == 1
    shown = [line.split() for line in maintain.render([first, second]).splitlines()[2:]]
    assert shown == [
        ["shop.items", "12", "3.0", "MB", "30", "of", "1200", "2", "2.0", "kB"],
        ["shop.costs", "no", "room"],
    ]


def test_what_a_running_kuvasz_refuses_is_not_done_here(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise remote.Refused("the token is wrong")

    monkeypatch.setattr(remote, "maintain", refuse)
    with pytest.raises(remote.Refused):
        maintain.run(config, None, full=False)
