from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kuvasz.model import TableName
from kuvasz.sync.context.caveat_log import CaveatLog
from tests.support.scene import Scene

CHILD = TableName(schema="public", name="child")


def test_a_caveat_is_told_once_and_again_when_it_is_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    log = CaveatLog(scene.source, scene.source_tables)

    def told(*children: TableName) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            log.tell({scene.items.table: scene.table(scene.items, children=children)})
        assert {record.__dict__["event"] for record in caplog.records} <= {"children_unmapped"}
        return len(caplog.records)

    assert told() == 0
    assert told(CHILD) == 1
    log.tell({})
    assert told(CHILD) == 0
    assert told(CHILD, TableName(schema="public", name="another")) == 1
    assert told(scene.others.table) == 0, "the map has it"
    assert told(CHILD) == 1
