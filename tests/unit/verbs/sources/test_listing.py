from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.verbs import remote
from kuvasz.verbs.sources import listing

MAP = """\
server: {address: "127.0.0.1:1"}
databases:
- {database: shop, urls: [{url: "postgresql://repl:pw@a/x", sid: a}], tables: {items: }}
- {database: crm, urls: [{url: "postgresql://localhost:1/x?connect_timeout=2", schemas: "t_(.+)"}],
   tables: {people: }}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return load(file, {}).config


def test_without_a_running_kuvasz_the_map_is_shown_and_sources_with_tenants_are_asked(config: Config) -> None:
    shop, crm = listing.run(config, SourceSelection())
    assert (shop["state"], shop["error"]) == (None, None)
    assert crm["error"], "it does not answer, and so nobody knows its tenants"
    _, _, first, *_ = listing.render([shop]).split("\n")
    assert first.split() == ["shop_a", "shop", "a", "not", "running", "1", "postgresql://repl:***@a/x"]
    (shown,) = listing.run(config, SourceSelection(database="shop"), with_tables=True)
    assert listing.render([shown]).split("\n")[-1] == "  shop_a  items  kuvasz.items  not running"
    with pytest.raises(ConfigError, match="the map has no source 'x' of group 'shop'"):
        listing.run(config, SourceSelection(database="shop", sid="x"))


def test_what_does_not_stream_is_counted(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[dict[str, Any]] = [
        {"table": f"t_{sid}.people", "target": "kuvasz.people", "tenant": sid, "state": state}
        for sid, state in (("x", "streaming"), ("y", "error"))
    ]
    source = {
        "source": "crm", "state": "streaming", "error": None, "lag_seconds": 1.25, "slot": None, "tables": tables
    }  # fmt: skip
    monkeypatch.setattr(remote, "status", lambda _: {"sources": [source], "released": []})
    found = listing.run(config, SourceSelection(database="crm"))
    _, _, crm, x, y, *_ = listing.render(found).split("\n")
    assert crm.split()[:6] == ["crm", "crm", "streaming", "2", "(1", "error)"]
    assert (x.split(), y.split()) == (["x", "1"], ["y", "1", "(1", "error)"])
