"""What is decided before Spark starts, and what is made of a start that fails."""

from __future__ import annotations

import pytest

from kuvasz.config.model import Config
from kuvasz.lake.java import jars
from kuvasz.lake.jvm import spark

SHOP = {"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            ["\t\t::::::::::::::", "\t\t:: org.xerial#sqlite-jdbc;3: unresolved dependency: not found", "x" * 9],
            "the Iceberg jars were not fetched: :: org.xerial#sqlite-jdbc;3: unresolved dependency: not found",
            jars.HINT,
        ),
        (
            ["Error: Could not create the Java Virtual Machine."],
            "spark does not start with master local[*]: Error: Could not create the Java Virtual Machine.",
            "check `spark.master` and `spark.conf`; Spark's own lines are above",
        ),
        (
            [],
            "spark does not start with master local[*]: [JAVA_GATEWAY_EXITED] Java gateway process exited",
            "check `spark.master` and `spark.conf`; Spark's own lines are above",
        ),
    ],
)
def test_a_start_that_fails_says_why_in_a_line(said: list[str], message: str, hint: str) -> None:
    told = ["[JAVA_GATEWAY_EXITED] Java gateway process exited"]
    error = spark._no_start(Config(databases=[SHOP]), told, said)
    assert (error.message, error.hint) == (message, hint)
