from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.config.load import load
from kuvasz.errors import LakeError
from kuvasz.lake.erasure import erasure
from kuvasz.lake.erasure.erasure import Erasure

MAP = """\
lake: {uri: "jdbc:sqlite:catalog.db", warehouse: wh, about: _now}
databases:
- database: shop
  urls: [{url: "postgresql://a/x", sid: de}]
  tables: {items: }
"""

#: namespace -> table -> its columns
SPACES: dict[str, dict[str, tuple[str, ...]]] = {
    "_now": {"rejects": ("rejected_at", "target")},
    "_then": {"rejects": ("rejected_at", "target"), "commits": ("committed_at", "target"), "cuts": ("made_at",)},
    "shop": {"rejects": ("rejected_at", "why"), "events": ("text",)},
}


class Shelf:
    """A catalog of these."""

    def namespaces(self) -> list[str]:
        return list(SPACES)

    def tables(self, namespace: str) -> list[str]:
        return [f"{namespace}.{name}" for name in SPACES[namespace]]

    def load(self, name: str) -> Any:
        namespace, _, table = name.rpartition(".")
        fields = tuple(SimpleNamespace(name=column) for column in SPACES[namespace][table])
        return SimpleNamespace(schema=SimpleNamespace(read=lambda: SimpleNamespace(fields=fields)))


class Locked(Shelf):
    """One of which others' namespaces may not be seen."""

    def namespaces(self) -> list[str]:
        raise LakeError("403")


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shelf: Shelf) -> Erasure:
    (tmp_path / "map.yaml").write_text(MAP)
    monkeypatch.setattr(erasure, "Catalog", lambda *_: shelf)
    return Erasure(load(tmp_path / "map.yaml", {}).config, cast("Any", None), tmp_path)


def test_tables_about_the_lake_that_the_map_names_no_more_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = made(tmp_path, monkeypatch, Shelf())
    assert work.left_behind(["rejects"]) == ["_then.rejects"]
    assert work.left_behind(["rejects", "events", "sources"]) == ["_then.rejects"]


def test_where_nobody_may_look_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = made(tmp_path, monkeypatch, Locked()).left_behind(["rejects"])
    assert told == "tables about the lake in other namespaces, which cannot be listed"
