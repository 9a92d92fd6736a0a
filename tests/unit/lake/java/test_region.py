from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.lake.java import region

SHOP = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}


def config_of(**lake: object) -> Config:
    return Config(databases=[SHOP], lake={"warehouse": "s3://lake/wh", **lake})


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(region, "_VENDOR", tmp_path / "board_vendor")


def test_no_region_for_s3_is_told_with_both_ways_to_give_one() -> None:
    for config in (config_of(), config_of(type="glue", warehouse="s3://x/y")):
        with pytest.raises(ConfigError) as told:
            region.prove(config, {})
        assert told.value.message == "no AWS region is known"
        assert told.value.hint == (
            "set AWS_REGION, or `client.region` in `lake.properties`; a store that knows no regions takes any,"
            " us-east-1"
        )


def test_other_stores_need_none() -> None:
    assert region.prove(config_of(warehouse="gs://lake/wh"), {}) == "not needed"


def test_a_region_is_found_wherever_the_sdk_finds_it(tmp_path: Path) -> None:
    assert region.prove(config_of(properties={"client.region": "eu-west-1"}), {}) == "lake.properties"
    assert region.prove(config_of(), {"AWS_REGION": "eu-west-1"}) == "AWS_REGION"
    conf = {"spark.driver.extraJavaOptions": "-Daws.region=x"}
    java = Config(databases=[SHOP], lake={"warehouse": "s3://l/w"}, spark={"conf": conf})
    assert region.prove(java, {}) == "spark.conf"
    (tmp_path / "mine").write_text("[default]\noutput = json\nregion = eu-west-1\n")
    assert region.prove(config_of(), {"AWS_CONFIG_FILE": str(tmp_path / "mine")}) == "a profile"
    (tmp_path / "board_vendor").write_text("Amazon EC2\n")
    assert region.prove(config_of(), {}) == "this machine"
