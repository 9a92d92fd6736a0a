"""Which tables of a map are published."""

from __future__ import annotations

import pytest

from kuvasz.admin.branches.chosen import chosen
from kuvasz.config import sources
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError

CONFIG = Config.model_validate({
    "lake": {"namespace": "shop", "branch": "staging"},
    "databases": [{
        "database": "shop",
        "urls": [{"url": f"postgresql://{sid}/shop", "sid": sid} for sid in ("eu", "us")],
        "tables": {
            "items": {}, "billing.prices": {"target": "costs", "branch": "audit"}, "plain": {"branch": "main"},
        },
    }],
})  # fmt: skip


@pytest.mark.parametrize(
    ("table", "branch", "targets"),
    [
        (None, None, ["shop.items", "shop.costs"]),
        (None, "audit", ["shop.costs"]),
        ("items", None, ["shop.items"]),
        ("billing.*", None, ["shop.costs"]),
        ("shop.*", "staging", ["shop.items"]),
        ("plain", None, ["shop.plain"]),
    ],
)
def test_each_is_meant_once_that_is_written_elsewhere_or_is_named(
    table: str | None, branch: str | None, targets: list[str]
) -> None:
    assert chosen(sources.resolve(CONFIG), table, branch) == targets


@pytest.mark.parametrize(
    ("table", "branch", "message"),
    [
        ("nothing", None, "the map has no table 'nothing'"),
        ("items", "audit", "no such table of the map is written on the branch 'audit'"),
    ],
)
def test_none_is_an_error(table: str, branch: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen(sources.resolve(CONFIG), table, branch)
    assert refused.value.message == message


def test_a_map_that_writes_main_alone_has_none() -> None:
    group = {"database": "shop", "urls": [{"url": "postgresql://eu/shop"}], "tables": {"items": {}}}
    with pytest.raises(ConfigError, match="written on another branch than main"):
        chosen(sources.resolve(Config.model_validate({"databases": [group]})), None, None)
