from __future__ import annotations

import json
from pathlib import Path

from ruamel.yaml import YAML

from kuvasz.config import effective, load
from tests.support.maps import loaded

MAP = """\
lake: {properties: {jdbc.password: catalog-pw, s3.endpoint: "http://s3"}}
spark: {conf: {spark.note: uses catalog-pw}}
databases:
- database: shop
  urls:
  - {url: "postgresql://repl:geheim@eu1/shop?sslpassword=two", sid: eu}
  tables:
    orders: {type: append, out_of_range: null}
    customers:
"""


def test_every_option_has_a_value_and_an_origin(tmp_path: Path) -> None:
    options = {
        o.path: (o.value, o.origin)
        for o in effective.options(loaded(tmp_path, MAP, flags={"pipeline.memory": "2GB"}))
    }
    assert options["lake.type"] == ("jdbc", "default")
    assert options["pipeline.memory"] == ("2GB", "flag")
    assert options["pipeline.commit_interval"] == ("1s", "default")
    assert options['lake.properties."jdbc.password"'] == ("***", "map.yaml:1:36")
    assert options['lake.properties."s3.endpoint"'] == ("http://s3", "map.yaml:1:61")
    assert options['spark.conf."spark.note"'] == ("uses ***", "map.yaml:2:28")
    assert options["databases[0].urls[0].url"] == (
        "postgresql://repl:***@eu1/shop?sslpassword=***", "map.yaml:6:11",
    )  # fmt: skip
    assert options["databases[0].tables.orders.type"] == ("append", "map.yaml:8:20")
    assert options["databases[0].tables.orders.out_of_range"] == ("null", "map.yaml:8:42")
    assert options["databases[0].tables.customers"] == ({}, "map.yaml:9:5")
    assert "databases[0].tables.orders.filter" not in options


def test_the_yaml_form_is_a_map_again_with_comments(tmp_path: Path) -> None:
    text = effective.yaml(loaded(tmp_path, MAP))
    assert "  workers: 2  # default\n" in text
    assert "  copy_parallelism: null # default\n" in text
    assert "catalog-pw" not in text
    assert "geheim" not in text
    assert YAML(typ="safe", pure=True).load(text) == effective.values(loaded(tmp_path, MAP))


def test_the_yaml_form_without_secrets_loads_to_the_same_config(tmp_path: Path) -> None:
    before = loaded(
        tmp_path,
        MAP.replace("jdbc.password: catalog-pw, ", "").replace(":geheim", "").replace("?sslpassword=two", ""),
    )
    (tmp_path / "again.yaml").write_text(effective.yaml(before))
    assert load.load(tmp_path / "again.yaml", {}).config == before.config


def test_values_are_ready_for_json(tmp_path: Path) -> None:
    server = json.loads(json.dumps(effective.values(loaded(tmp_path, MAP))))["server"]
    assert server == {"address": "127.0.0.1:8000", "hosts": [], "metrics": "per_table", "tls": None, "tokens": []}
