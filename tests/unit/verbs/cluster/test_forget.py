"""What a process held that is gone for good, by a map that nobody else has."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.load import Loaded, load
from kuvasz.errors import ConfigError
from kuvasz.state.ports import LeaseHolder
from kuvasz.verbs.cluster import forget, nodes
from kuvasz.verbs.cluster.standby import Standby


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    groups = [{"database": "eu", "urls": [{"url": "postgresql:///eu"}], "tables": {"items": None}}]
    (file := tmp_path / "map.yaml").write_text(json.dumps({"databases": groups}))
    return load(file, {})


def test_one_that_is_known_is_forgotten_and_another_one_named(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "joined", lambda _: SimpleNamespace(forget=lambda name: name == "one-1"))
    assert "the others take what it held" in forget.run(loaded.config, "one-1")
    with pytest.raises(ConfigError, match="nothing is known of a process two-2"):
        forget.run(loaded.config, "two-2")


def test_a_standby_with_another_map_says_what_to_do_when_the_holder_dies(
    loaded: Loaded, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for ever else, and nobody knows for what."""
    holder: LeaseHolder | None = LeaseHolder(
        node="one-1", does="replicates", map_digest="its map", since="", is_late=False
    )

    def take(*_: Any) -> LeaseHolder | None:
        return None if holder is None or holder.is_late else holder

    member: Any = SimpleNamespace(node="two-2", take=take, holder=lambda: holder)
    standby = Standby(loaded, member)

    def looks() -> list[bool]:
        return [standby._take() for _ in range(21)]

    def told() -> list[str | None]:
        return [one.__dict__.get("hint") for one in caplog.records if "has another map" in one.getMessage()]

    assert (any(looks()), [hint and "give both the same map" in hint for hint in told()]) == (False, [True])
    holder = LeaseHolder(node="one-1", does="replicates", map_digest="its map", since="", is_late=True)
    assert (any(looks()), len(told())) == (False, 2)
    hint = told()[1] or ""
    assert hint.endswith("if it is gone for good: kuvasz cluster forget one-1")
    holder = None  # as the hint says
    assert any(looks())
