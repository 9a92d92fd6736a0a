"""By which rules the rows of a lake table's sources were made, as its properties say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from kuvasz.errors import OtherRule
from kuvasz.lake.definition.source_rules import SourceRules
from kuvasz.lake.format import gaps, rule
from kuvasz.model import TableType
from kuvasz.ports import Gap, Target
from tests.support.changes import feed, target

FILTERED = dataclasses.replace(target(), filter="id > 0")
APPEND = dataclasses.replace(FILTERED, type=TableType.APPEND)
GAP = {gaps.PREFIX + "eu": gaps.render([Gap(from_lsn=5, noticed_us=1)])}
PLAIN = {rule.PREFIX + "eu": rule.of(target(), {})}


class Table:
    """An Iceberg table as far as its properties go."""

    def __init__(self, *properties: Mapping[str, str]) -> None:
        self.properties = {name: text for some in properties for name, text in some.items()}
        self.commits = 0

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.properties |= properties
        self.commits += 1


def test_rows_of_an_earlier_version_take_todays_rule_once() -> None:
    table = Table()
    rules = SourceRules(table, {"eu"})
    assert rules.go_by(FILTERED, feed(), {}) == ""
    for _ in range(2):
        rules.remember(FILTERED, "eu")
    assert (rules.noted("eu"), rules.noted("us"), table.commits) == (rule.of(FILTERED, {}), None, 1)
    assert rules.go_by(FILTERED, feed(), {}) == ""
    assert rules.go_by(target(), feed(), {})


def test_without_rows_there_is_nothing_to_compare_or_to_note() -> None:
    table = Table(PLAIN)
    rules = SourceRules(table, ())
    assert rules.go_by(FILTERED, feed(), {}) == ""
    rules.remember(FILTERED, "eu")
    assert table.commits == 0


@pytest.mark.parametrize(("wanted", "keeps"), [(FILTERED, False), (APPEND, True)])
def test_behind_a_gap_only_what_cannot_be_compared_keeps_its_rows(wanted: Target, keeps: bool) -> None:
    rules = SourceRules(Table(PLAIN, GAP), ())
    if not keeps:
        assert rules.go_by(wanted, feed(), {}) == ""
        return
    with pytest.raises(OtherRule):
        rules.go_by(wanted, feed(), {})
    agreed = dataclasses.replace(wanted, keeps_rows=True)
    assert rules.go_by(agreed, feed(), {}) == ""
    rules.remember(agreed, "eu")
    assert rules.go_by(wanted, feed(), {}) == ""
