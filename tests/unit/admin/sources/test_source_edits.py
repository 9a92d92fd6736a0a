from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.sources import mapped_url, source_edits
from kuvasz.config.written import map_text
from kuvasz.config.written.map_edit import Append
from kuvasz.errors import ConfigError
from tests.support.maps import loaded

MAP = """
databases:
- database: shop  # of all
  urls:
  - {url: "postgresql://a/x", sid: a}  # first
  - {url: "postgresql://b/x", sid: b}
  - {url: "postgresql://c/x", sid: c}  # third
  tables: {items: }
"""


def test_a_source_is_added_to_its_group(tmp_path: Path) -> None:
    config = loaded(tmp_path, MAP).config
    said = {"url": "postgresql://d/x", "sid": "d"}
    assert source_edits.added(config, "shop", said) == [Append(path=("databases", 0, "urls"), value=said)]
    with pytest.raises(ConfigError, match=r"the map has no group 'other'.*\nhint: it has: shop"):
        source_edits.added(config, "other", said)
    with pytest.raises(ConfigError, match="the group 'shop' has the source 'b' already"):
        source_edits.added(config, "shop", said | {"sid": "b"})


def test_several_leave_at_once_and_the_comments_of_others_stay(tmp_path: Path) -> None:
    first, _, third = mapped_url.all_of(loaded(tmp_path, MAP).config)
    text = map_text.edited(MAP, source_edits.dropped([first, third]))
    assert text == MAP.replace('  - {url: "postgresql://a/x", sid: a}  # first\n', "").replace(
        '  - {url: "postgresql://c/x", sid: c}  # third\n', ""
    )
