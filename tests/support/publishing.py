"""A table whose publication is to leave something out: kuvasz at work on it, and what verbs say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from kuvasz.config.model import Config
from kuvasz.verbs import check, plan
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database


def config_of(lake: LakeFolder, database: Database, table: str, entry: Mapping[str, object]) -> Config:
    """A map with the table alone."""
    return lake.config(group({"eu": database}, {table: dict(entry)}))


@contextmanager
def running(lake: LakeFolder, database: Database, table: str, entry: Mapping[str, object]) -> Iterator[Pipeline]:
    """Kuvasz at work, once the table streams."""
    with Pipeline(config_of(lake, database, table, entry), lake) as pipeline:
        pipeline.wait_streaming()
        yield pipeline


def verbs_say(
    lake: LakeFolder, database: Database, table: str, entry: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """The statements of `plan`, and what `check` finds of the publication."""
    config = config_of(lake, database, table, entry)
    (planned,) = plan.plans(config)
    assert planned.error is None
    found = check.findings(config)
    return list(planned.statements), [f"{one.value} {one.fix}" for one in found if one.check == "publication"]


def times_told(caplog: pytest.LogCaptureFixture, message: str) -> int:
    """How often a message was logged."""
    return sum(record.getMessage() == message for record in caplog.records)
