from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.load import Loaded, load
from kuvasz.errors import ConfigError
from kuvasz.source.check.finding import Finding
from kuvasz.verbs import check, remote
from kuvasz.verbs.sources import adding
from kuvasz.verbs.sources.adding import SourceEntry

MAP = """\
databases:
- database: shop
  urls: [{url: "postgresql://a/x", sid: a}]
  tables: {items: }
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    def reload(*_: object, **__: object) -> None:
        raise remote.NotRunning("nobody")

    monkeypatch.setattr(remote, "reload", reload)
    monkeypatch.setenv("B_PASSWORD", "geheim")
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return load(file)


def findings(monkeypatch: pytest.MonkeyPatch, *, ok: bool) -> None:
    found = Finding(source="kuvasz_shop_b", check="wal_level", value="minimal", needed="logical", ok=ok, fix="ALTER")
    monkeypatch.setattr(check, "of_sources", lambda *_: [found])


def test_one_that_cannot_be_replicated_is_not_written(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    findings(monkeypatch, ok=False)
    new = SourceEntry(
        database="shop", sid="b", url="postgresql://repl:${B_PASSWORD}@b/x",
        replication_url="postgresql://slots:${B_PASSWORD}@",
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"shop_b cannot be replicated, and is not added:\n.*wal_level: minimal"):
        adding.run(loaded, new)
    assert loaded.path is not None
    assert loaded.path.read_text() == MAP
    assert adding.run(loaded, new, is_checked=False)["source"] == "shop_b"
    told = loaded.path.read_text()
    assert 'url: "postgresql://repl:${B_PASSWORD}@b/x", sid: b, replication_url: "postgresql://slots:${B_' in told


def test_what_became_of_it_is_said(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    findings(monkeypatch, ok=True)
    answer = adding.run(loaded, SourceEntry(database="shop", sid="b", url="postgresql://repl:pw@b/x"))
    assert answer == {
        "source": "shop_b", "is_running": False, "tables": ["kuvasz.items"], "has_password": True, "advice": [],
    }  # fmt: skip
    told = adding.render(answer)
    assert told.startswith("added: shop_b, 1 tables; no kuvasz answers here")
    assert "its password stands in the map now" in told
