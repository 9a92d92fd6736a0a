from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config import environment
from tests.support.maps import SHOP, faults, loaded, refusal


def test_every_option_of_a_section_has_a_variable() -> None:
    names = environment.options()
    assert names["KUVASZ_PIPELINE__COMMIT_INTERVAL"] == ("pipeline", "commit_interval")
    assert names["KUVASZ_SERVER__ADDRESS"] == ("server", "address")
    assert names["KUVASZ_DATABASES"] == ("databases",)
    assert len(names) == 11 + 3 + 15 + 11 + 5 + 3 + 2 + 3 + 2 + 5 + 9 + 7 + 2


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("KUVASZ_PIPELINE__WORKER", "did you mean 'KUVASZ_PIPELINE__WORKERS'?"),
        ("KUVASZ_PIPELINE_WORKERS", "did you mean 'KUVASZ_PIPELINE__WORKERS'?"),
        ("KUVASZ_CONFG", "did you mean 'KUVASZ_CONFIG'?"),
        ("KUVASZ_ZZZ", "options are written KUVASZ_SECTION__OPTION"),
        ("KUVASZ_PORT", "options are written KUVASZ_SECTION__OPTION"),
    ],
)
def test_an_unknown_name_is_refused_with_a_guess(tmp_path: Path, name: str, guess: str) -> None:
    assert refusal(tmp_path, SHOP, {name: "1"}) == f"environment {name}: unknown option: {guess}"


def test_names_that_are_no_options_are_left_alone(tmp_path: Path) -> None:
    kubernetes = {
        "KUVASZ_SERVICE_HOST": "10.0.0.1", "KUVASZ_SERVICE_PORT": "8000", "KUVASZ_PORT": "tcp://10.0.0.1:8000",
        "KUVASZ_PORT_8000_TCP": "tcp://10.0.0.1:8000", "KUVASZ_PORT_8000_TCP_ADDR": "10.0.0.1",
        "KUVASZ_METRICS_SERVICE_PORT_HTTP": "8000", "KUVASZ_METRICS_PORT": "tcp://10.0.0.1:8000",
    }  # fmt: skip
    ours = {"KUVASZ_CONFIG": "map.yaml", "KUVASZ_FAILPOINTS": "x", "KUVASZ_POSTGRES_ACCOUNT": "y", "kuvasz_x": "z"}
    assert faults(tmp_path, SHOP, {**kubernetes, **ours, "PATH": "/bin"}) == []


def test_names_that_the_map_refers_to_may_be_called_anything(tmp_path: Path) -> None:
    text = SHOP.replace("geheim", "${KUVASZ_EU_PW}")
    config = loaded(tmp_path, text, {"KUVASZ_EU_PW": "a@b"}).config
    assert config.databases[0].urls[0].url.get() == "postgresql://repl:a%40b@eu1/shop"


def test_wrong_values_are_told_with_the_name(tmp_path: Path) -> None:
    environ = {"KUVASZ_PIPELINE__WORKERS": "many", "KUVASZ_LAKE__TYPE": "jbdc", "KUVASZ_SPARK__CONF": "[a"}
    assert faults(tmp_path, SHOP, environ, {"server.address": "x"}) == [
        "environment KUVASZ_LAKE__TYPE: lake.type: must be jdbc, rest, hive or glue, not 'jbdc':"
        " did you mean 'jdbc'?",
        "environment KUVASZ_PIPELINE__WORKERS: pipeline.workers: must be a whole number, not 'many'",
        "environment KUVASZ_SPARK__CONF: spark.conf: must be a mapping (key: value), not '[a'",
        "flag: server.address: must be host:port such as 127.0.0.1:8000 or [::1]:8000, not 'x'",
    ]


def test_a_mapping_joins_the_one_of_the_file(tmp_path: Path) -> None:
    text = "spark: {conf: {a: 1, b: 2}}\n" + SHOP
    result = loaded(tmp_path, text, {"KUVASZ_SPARK__CONF": "{b: 3, c: 1.10}"}, {"spark.conf.d.e.f": "5"})
    assert result.config.spark.conf == {"a": "1", "b": "3", "c": "1.1", "d.e.f": "5"}
    assert result.origin_of(("spark", "conf", "a")) == "map.yaml:1:19"
    assert result.origin_of(("spark", "conf", "b")) == "environment KUVASZ_SPARK__CONF"
    assert result.origin_of(("spark", "conf", "d.e.f")) == "flag"


def test_null_means_none_and_nothing_means_unset(tmp_path: Path) -> None:
    text = "pipeline: {copy_rows_per_second: 5, workers: 3}\n" + SHOP
    environ = {"KUVASZ_PIPELINE__COPY_ROWS_PER_SECOND": "null", "KUVASZ_PIPELINE__WORKERS": ""}
    pipeline = loaded(tmp_path, text, environ).config.pipeline
    assert (pipeline.copy_rows_per_second, pipeline.workers) == (None, 3)


def test_a_section_that_is_no_mapping_is_the_files_fault(tmp_path: Path) -> None:
    assert refusal(tmp_path, "pipeline: 5\n" + SHOP, {"KUVASZ_PIPELINE__WORKERS": "3"}) == (
        "map.yaml:1:11: pipeline: must be a mapping (key: value), not 5"
    )
