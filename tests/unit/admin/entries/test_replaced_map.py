from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.entries import replaced_map
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from tests.support.maps import loaded

DATABASES = """
databases:
- database: shop
  urls: [{url: "postgresql://repl:pw@eu1/shop"}]
  tables: {items: }
"""


def a_map(folder: Path, text: str) -> Config:
    return loaded(folder, text + DATABASES).config


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("", "lake: {uri: 'https://evil', type: rest}\n", "lake.type, lake.uri count from the next start on"),
        ("", "spark: {conf: {spark.jars: 'https://evil/x.jar'}}\n", "spark.conf counts from the next start on"),
        ("", "copy: {from: 'postgresql://evil'}\n", "copy.from would be sent the password"),
        ("", "copy: {from: 'postgresql://evil/?password=x'}\n", "copy.from would be sent"),
        ("", "copy: {servers: {eu1: {from: 'postgresql://evil'}}}\n", "copy.servers.eu1.from would be sent"),
        (
            "copy: {from: 'postgresql://s1', servers: {eu1: {from: 'postgresql://s2'}}}\n",
            "copy: {from: 'postgresql://s1'}\n",
            "copy.from would be sent",
        ),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, before: str, after: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        replaced_map.refuse(a_map(tmp_path, before), a_map(tmp_path, after))
    assert "`kuvasz map import`" in (refused.value.hint or "")


REPLICATING = """
databases:
- database: shop
  urls:
  - {url: "postgresql://repl:pw@eu1/shop", sid: a, replication_url: "postgresql://slots:geheim@"}
  tables: {items: }
"""


@pytest.mark.parametrize(
    "other",
    [
        "'postgresql://me:mine@evil/shop'",
        "'postgresql://repl:pw@eu1/shop?host=evil'",
        "'postgresql://repl:pw@eu1:1/s'",
    ],
)
def test_the_password_of_who_replicates_goes_to_no_other_server(tmp_path: Path, other: str) -> None:
    before = loaded(tmp_path, REPLICATING).config
    moved = REPLICATING.replace('"postgresql://repl:pw@eu1/shop"', other)
    added = REPLICATING.replace("  tables:", f"  - {{url: {other}, sid: b, replication_url: "
                                "'postgresql://slots:geheim@'}\n  tables:")  # fmt: skip
    for after in (moved, added):
        with pytest.raises(ConfigError, match="would be sent the password of another source's replication_url"):
            replaced_map.refuse(before, loaded(tmp_path, after).config)


@pytest.mark.parametrize(
    "after",
    [
        REPLICATING, REPLICATING.replace("/shop", "/store"), REPLICATING.replace("geheim", "another"),
        REPLICATING.replace(', replication_url: "postgresql://slots:geheim@"', ""),
    ],
)  # fmt: skip
def test_who_replicates_may_change_where_nothing_leads_elsewhere(tmp_path: Path, after: str) -> None:
    replaced_map.refuse(loaded(tmp_path, REPLICATING).config, loaded(tmp_path, after).config)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "copy: {from: 'postgresql://me:mine@standby'}\n"),
        ("", "copy: {from: 'postgresql://standby/?user=me'}\n"),
        ("copy: {from: 'postgresql://s1'}\n", "copy: {from: 'postgresql://s1', hours: '22:00-06:00'}\n"),
        ("copy: {from: 'postgresql://s1'}\n", "copy: {from: 'postgresql://s1', servers: {eu1: {sessions: 2}}}\n"),
        ("copy: {from: 'postgresql://s1'}\n", "copy: {from: 'postgresql://s1', servers: {eu1: {from: null}}}\n"),
        ("copy: {from: 'postgresql://s1'}\n", ""),
        ("pipeline: {workers: 3}\n", "pipeline: {workers: 3, commit_interval: 5s}\n"),
    ],
)
def test_all_else_may_come(tmp_path: Path, before: str, after: str) -> None:
    replaced_map.refuse(a_map(tmp_path, before), a_map(tmp_path, after))
