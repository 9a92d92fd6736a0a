"""The configuration as it may be given away."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from kuvasz.verbs.support import configuration
from kuvasz.verbs.support.configuration import without_texts
from tests.support.maps import loaded

MAP = """
lake:
  properties:
    s3.endpoint: https://me:geheim1@store
    s3.secret-access-key: geheim2
    my.other: geheim3
    my.file: ${file:key}
    io.threads: "8"
spark:
  conf: {spark.hadoop.my.account: geheim4, spark.executor.memory: 2g, spark.app.tag: nightly,
    spark.executorEnv.MINE: geheim9, spark.kubernetes.driverEnv.MINE: geheim9, spark.yarn.appMasterEnv.MINE: geheim9}
pipeline: {mask_secret: "${SECRET}"}
databases:
- database: shop
  urls: [{url: "postgresql://repl:geheim7@eu1/shop?sslpassword=geheim8", sid: eu}]
  tables:
    items: {filter: "city = 'a value' AND `a column` > 3", set: {id: id, x: "concat(y, 'another value')"}}
    others:
    events: {route: {by: "nullif(kind, 'third value')", to: "of_{value}", allow: [a], rest: more}}
"""


def test_secrets_unknown_properties_and_texts_in_expressions_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("geheim5")
    found = configuration.gather(loaded(tmp_path, MAP, {"SECRET": "geheim6-long-enough"}))
    (page,) = found.files.values()
    assert "geheim" not in page
    assert "value" not in page.replace("values", "").replace("{value}", "")
    told = YAML(typ="safe", pure=True).load(page)
    assert told["lake"]["properties"]["io.threads"] == "8"
    assert told["lake"]["properties"]["s3.endpoint"] == "https://me:***@store"
    assert told["spark"]["conf"] == {
        "spark.hadoop.my.account": "***", "spark.executor.memory": "2g", "spark.app.tag": "nightly",
        "spark.executorEnv.MINE": "***", "spark.kubernetes.driverEnv.MINE": "***",
        "spark.yarn.appMasterEnv.MINE": "***",
    }  # fmt: skip
    tables = told["databases"][0]["tables"]
    assert tables["items"] == {"filter": "city = '…' AND `a column` > 3", "set": {"id": "id", "x": "concat(y, '…')"}}
    assert tables["events"]["route"]["by"] == "nullif(kind, '…')"
    assert "# map.yaml:" in page


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("a = 'it''s' or b = 1", "a = '…''…' or b = 1"),
        ("a = 'it\\'s'", "a = '…'"),
        ("a = \"x\" and r'y' = `it's`", "a = '…' and '…' = `it's`"),
        ("a /* a 'value' */ > 1 -- b", "a '…' > 1 '…'"),
        ("a > 1", "a > 1"),
        ("a = 'open", "a = '…'"),
    ],
)
def test_texts_and_comments_of_an_expression_are_left_out(expression: str, shown: str) -> None:
    assert without_texts(expression) == shown
