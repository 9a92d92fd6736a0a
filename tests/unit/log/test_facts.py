"""Every fact that is told is known, by one name and one meaning, and none is known that nothing tells."""

from __future__ import annotations

import pytest

from kuvasz.log.facts import FACTS
from tests.support import log_schema

pytestmark = pytest.mark.text

#: Facts that are put together first -> what they have.
GATHERED = {
    "**_counts([one])": {"rows", "inserts", "updates", "deletes", "commits", "tables", "lag_s"},
    "**_counts(others)": set(),
    "**found.as_json()": {"added", "removed", "changed", "needs_restart"},
    "**facts": {"source", "table", "lsn", "rows", "seconds", "result", "untold", "before"},
    "**shown": {"by", "person", "what", "target"},
    "**of": {"source"},
    "**self._told": {"source", "table"},
    "**why": {"error"},
}


def test_every_fact_is_known_and_told() -> None:
    told = log_schema.told().keys()
    assert {name for name in told if name.startswith("**")} == GATHERED.keys(), "what do these have?"
    plain = {name for name in told if not name.startswith("**")}.union(*GATHERED.values())
    assert plain == FACTS.keys()
