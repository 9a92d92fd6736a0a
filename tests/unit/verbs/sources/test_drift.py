from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError, SourceError
from kuvasz.verbs.sources import drift
from tests.support.maps import loaded

MAP = """
databases:
- database: shop
  urls: [{url: "postgresql://a/x", sid: a}, {url: "postgresql://b/x", sid: b}, {url: "postgresql://c/x", sid: c}]
  tables: {items: }
"""

USUAL = {"id": "int4, key", "name": "text"}


@pytest.mark.parametrize(
    ("columns", "usual", "found"),
    [
        (USUAL, USUAL, []),
        (None, USUAL, [("", "no table", "a table")]),
        (USUAL, None, [("", "a table", "no table")]),
        ({"id": "int8, key", "more": "int4"}, USUAL, [
            ("id", "int8, key", "int4, key"), ("more", "int4", "no column"), ("name", "no column", "text"),
        ]),
    ],
)  # fmt: skip
def test_each_column_is_compared_by_its_name(columns: Any, usual: Any, found: list[tuple[str, str, str]]) -> None:
    assert drift.differences(columns, usual) == found


def test_most_are_right_and_whoever_comes_first_of_as_many() -> None:
    other = {"id": "int8"}
    assert drift.most_common([USUAL, other, dict(reversed(USUAL.items()))]) == USUAL
    assert drift.most_common([other, USUAL]) == other
    assert drift.most_common([None, None, USUAL]) is None


def test_a_group_is_compared_as_a_whole_whoever_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(tmp_path, MAP).config
    shapes: dict[str, Any] = {
        "shop_a": {("a", "public.items"): USUAL},
        "shop_b": {("b", "public.items"): {"id": "int4, key"}},
        "shop_c": SourceError("it is down"),
    }

    def of(source: Source) -> Any:
        return shapes[source.name]

    monkeypatch.setattr(drift, "_shapes", of)
    found = drift.run(config, SourceSelection())
    assert [(one.sid, one.what, one.found, one.usual) for one in found] == [
        ("c", "", "it is down", "an answer"), ("b", "name", "no column", "text"),
    ]  # fmt: skip
    assert [one.sid for one in drift.run(config, SourceSelection(sid="b"))] == ["b"]
    assert (drift.exit_code(found), drift.exit_code([])) == (4, 0)
    assert drift.render(found).split("\n")[-1].split() == [
        "shop",
        "b",
        "public.items",
        "name",
        "no",
        "column",
        "text",
    ]
    assert len(drift.as_json(found)) == 2
    with pytest.raises(ConfigError, match="the map has no source 'x'"):
        drift.run(config, SourceSelection(sid="x"))
