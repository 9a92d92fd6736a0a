from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config.model import OnSchemaChange
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, ColumnsUnclear, EarlierError, OtherRule, SchemaAwaited, SchemaHeld
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.rules.targets import target_of
from tests.support.scene import Scene


@pytest.fixture
def spec(tmp_path: Path) -> SourceTableSpec:
    spec = Scene(tmp_path).items
    return dataclasses.replace(spec, config=spec.config.model_copy(update={"on_schema_change": OnSchemaChange.HOLD}))


def test_a_schema_change_is_agreed_to_once(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"secret")
    held = target_of(spec, b"secret")
    assert approvals.target_of(spec) == held
    approvals.give(spec.key, SchemaHeld("its columns changed"))
    assert approvals.target_of(spec) == dataclasses.replace(held, on_schema_change="evolve")
    approvals.followed(spec)
    assert approvals.target_of(spec) == held


def test_who_waits_for_others_need_not(spec: SourceTableSpec) -> None:
    spec = dataclasses.replace(spec, config=spec.config.model_copy(update={"on_schema_change": OnSchemaChange.AGREE}))
    approvals = Approvals(b"")
    approvals.give(spec.key, SchemaAwaited("another has not done the same"))
    assert approvals.target_of(spec).on_schema_change == "evolve"


def test_nothing_but_a_hold_is_lifted(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"")
    refusing = dataclasses.replace(
        spec, config=spec.config.model_copy(update={"on_schema_change": OnSchemaChange.STOP})
    )
    approvals.give(spec.key, None)
    assert approvals.target_of(refusing) == target_of(refusing)


def test_a_gap_is_accepted_only_by_who_was_told_of_it(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"")
    approvals.give(spec.key, SchemaHeld("its columns changed"))
    assert not approvals.is_gap_accepted(spec)
    approvals.give(spec.key, ChangesLost("its changes are lost"))
    assert approvals.is_gap_accepted(spec)
    approvals.closed(spec)
    assert not approvals.is_gap_accepted(spec)


def test_rows_of_another_rule_stay_once_somebody_agreed_who_was_told_of_them(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"")
    approvals.give(spec.key, ChangesLost("its changes are lost"))
    assert not approvals.target_of(spec).keeps_rows
    approvals.give(spec.key, OtherRule("the filter is another one"))
    assert approvals.target_of(spec).keeps_rows
    approvals.followed(spec)
    assert not approvals.target_of(spec).keeps_rows


def test_columns_are_taken_as_they_probably_are_only_where_somebody_agreed(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"")
    approvals.give(spec.key, ColumnsUnclear("nothing speaks for an answer", through=100))
    assert not approvals.is_believed(spec, 99, "")
    approvals.give(spec.key, ColumnsUnclear("which it means is not proved", through=100, likely="a is number 1"))
    approvals.give(spec.key, ColumnsUnclear("which it means is not proved", through=200, likely="a is number 2"))
    assert approvals.is_believed(spec, 99, "a is number 1")
    assert not approvals.is_believed(spec, 100, "a is number 1")
    assert approvals.is_believed(spec, 100, "a is number 2")
    assert not approvals.is_believed(spec, 99, "a is number 3"), "nobody was told of this one"


def test_an_answer_that_came_early_is_for_the_same_words_and_for_once(spec: SourceTableSpec) -> None:
    approvals = Approvals(b"")
    approvals.give(spec.key, EarlierError("its changes are lost"))
    assert not approvals.is_gap_accepted(spec)
    assert not approvals.give_as_answered(spec.key, ChangesLost("others are lost, too"))
    assert not approvals.is_gap_accepted(spec)
    assert approvals.give_as_answered(spec.key, ChangesLost("its changes are lost"))
    assert approvals.is_gap_accepted(spec)
    assert not approvals.give_as_answered(spec.key, ChangesLost("its changes are lost"))
