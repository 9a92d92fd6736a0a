"""Which columns of a source are shown beside the lake's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config import sources
from kuvasz.config.load import load
from kuvasz.verbs.lake.row_at_source import columns


@pytest.mark.parametrize(
    ("table", "plain", "hidden"),
    [
        ({}, {"id": "id", "mail": "mail", "n": "n"}, ()),
        ({"exclude": ["mail"]}, {"id": "id", "n": "n"}, ()),
        ({"columns": ["id"]}, {"id": "id"}, ()),
        ({"mask": {"mail": "redact"}}, {"id": "id", "n": "n"}, ("mail",)),
        ({"set": {"number": "id", "mail": "sha2(mail, 256)", "N": "`N`"}}, {"number": "id", "N": "n"}, ("mail",)),
        ({"set": {"id": "id", "to": "mail"}, "mask": {"to": "redact"}}, {"id": "id"}, ("to",)),
    ],
)
def test_what_is_masked_computed_or_left_out_is_not_shown(
    tmp_path: Path, table: dict[str, Any], plain: dict[str, str], hidden: tuple[str, ...]
) -> None:
    databases = [{"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": table or None}}]
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps({"databases": databases}))
    (spec,) = sources.resolve(load(file, {}).config)[0].tables
    assert columns(spec, ["id", "mail", "n"]) == (plain, hidden)
