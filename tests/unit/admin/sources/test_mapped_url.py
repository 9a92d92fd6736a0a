from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.sources import mapped_url
from kuvasz.admin.sources.mapped_url import SourceSelection
from tests.support.maps import loaded

MAP = """
map: {writable: true}
databases:
- database: shop
  urls: [{url: "postgresql://a/x", sid: de_1}, {url: "postgresql://b/x", sid: us}]
  tables: {items: }
- {database: later, urls: [{url: "postgresql://c/x"}], tables: {}}
"""


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (SourceSelection(), ["shop_de_1", "shop_us", "later"]),
        (SourceSelection(sid="de_*"), ["shop_de_1"]),
        (SourceSelection(sid="shop_us"), ["shop_us"]),
        (SourceSelection(sid="later"), ["later"]),
        (SourceSelection(sid=""), []),
        (SourceSelection(database="s*", sid="*"), ["shop_de_1", "shop_us"]),
        (SourceSelection(database="shop", sid="later"), []),
    ],
)
def test_sources_are_meant_by_patterns(tmp_path: Path, choice: SourceSelection, meant: list[str]) -> None:
    found = mapped_url.all_of(loaded(tmp_path, MAP).config)
    assert [one.name for one in found if choice.has(one)] == [one.name for one in found if choice.has_whole(one)]
    assert [one.name for one in found if choice.has(one)] == meant


def test_a_source_is_meant_by_a_tenant_of_it_and_then_not_as_a_whole(tmp_path: Path) -> None:
    one, *_ = mapped_url.all_of(loaded(tmp_path, MAP).config)
    choice = SourceSelection(sid="ac*")
    assert choice.has(one, ["beta", "acme"])
    assert not choice.has_whole(one)
    assert not SourceSelection(sid="ac*", database="other").has(one, ["acme"])


def test_it_knows_its_place_and_its_slot(tmp_path: Path) -> None:
    found = mapped_url.all_of(loaded(tmp_path, MAP).config)
    assert [(one.path, one.slot) for one in found] == [
        (("databases", 0, "urls", 0), "kuvasz_shop_de_1"),
        (("databases", 0, "urls", 1), "kuvasz_shop_us"),
        (("databases", 1, "urls", 0), "kuvasz_later"),
    ]
    assert SourceSelection(sid="de", database="shop").describe() == "source 'de' of group 'shop'"
