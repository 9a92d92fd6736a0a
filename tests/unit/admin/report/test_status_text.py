from __future__ import annotations

import dataclasses
import json

import pytest

from kuvasz.admin import views
from kuvasz.admin.observer import Snapshot
from kuvasz.admin.report.status_text import StatusText
from kuvasz.admin.views import ErrorView
from kuvasz.errors import SchemaError
from kuvasz.parking.logs import ParkedView
from kuvasz.state.tables import State, TableState
from kuvasz.state.verdicts.verdict import Verdict
from tests.support import costs, fleets
from tests.support.snapshots import snapshot

TRUSTED = ErrorView(is_trusted=True)
DAY = snapshot()
ODD = [dataclasses.replace(DAY.view, waiting_bytes=said) for said in ("a table", "a \ud800 table", float("inf"))]
MOMENTS = {
    "good": DAY,
    **{f"odd {at}": dataclasses.replace(DAY, view=view) for at, view in enumerate(ODD)},
    "bad": fleets.few(),
    "hostile": fleets.hostile('"sources":[] "tables":[]} \ud800'),
    "empty": dataclasses.replace(DAY, view=dataclasses.replace(DAY.view, sources=(), tables=())),
    "staged": snapshot(staged=None),
}


def assert_says(text: StatusText, moment: Snapshot, errors: ErrorView = TRUSTED) -> None:
    assert json.loads(text.of(moment)) == json.loads(json.dumps(views.status(moment, errors)))


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize(
    "errors", [ErrorView(), ErrorView(redact=lambda text: text.replace("items", "***")), TRUSTED]
)
def test_it_says_what_the_status_says(name: str, errors: ErrorView) -> None:
    text = StatusText(errors)
    for _ in range(2):
        assert_says(text, MOMENTS[name], errors)


def later(moment: Snapshot, seconds: float, tables: list[TableState], **view: object) -> Snapshot:
    seen = dataclasses.replace(moment.view, tables=tuple(tables), **view)  # type: ignore[arg-type]
    return dataclasses.replace(moment, now=moment.now + seconds, clock=moment.clock + seconds, view=seen)


def test_it_says_what_has_changed_since() -> None:
    text, moment = StatusText(TRUSTED), fleets.few()
    assert_says(text, moment)
    for number, facts in enumerate((
        {"rows": 99, "commits": 4},
        {"state": State.ERROR, "error": SchemaError("its key went", hint="kuvasz resync items"), "retry_at": 1e9},
        {"state": State.COPYING, "error": None, "copy_done": 3, "copy_total": 10, "copy_began": 3.0},
        {"copy_done": 4},
        {"state": State.STREAMING, "waits_for": "pid 12"},
        {"waits_for": ""},
    ), start=1):  # fmt: skip
        tables = list(moment.view.tables)
        tables[0] = dataclasses.replace(tables[0], **facts)
        moment = later(moment, 10, tables)
        assert_says(text, moment)
        assert_says(text, later(moment, number, tables))
    key = moment.view.tables[0].target, moment.view.tables[0].source
    tables = list(moment.view.tables)
    verdict = Verdict(at=1.0, lsn="0/1", rows=1, differences=2, left=0)
    parked = ParkedView(bytes=1, since=1.0, first_lsn=1, is_full=True)
    for parks, verdicts in [
        ({}, {key: verdict}), ({key: parked}, {key: verdict}), ({}, {key: verdict}),
        ({}, {key: dataclasses.replace(verdict, error="it is gone")}), ({}, {}), ({key: parked}, {}), ({}, {}),
    ]:  # fmt: skip
        moment = later(moment, 1, tables, parked=parks, verdicts=verdicts)
        assert_says(text, moment)


def test_it_forgets_tables_that_left() -> None:
    text, moment = StatusText(TRUSTED), fleets.many(3)
    assert_says(text, moment)
    assert len(text._kept) == 15
    fewer = later(moment, 1, list(moment.view.tables[:4]))
    assert_says(text, fewer)
    assert_says(text, later(moment, 2, list(moment.view.tables)))
    assert_says(text, fewer)
    assert len(text._kept) == 4


def test_another_look_costs_less_than_the_first() -> None:
    text, moment = StatusText(TRUSTED), fleets.many(200)
    first, again = costs.calls(text.of, moment), costs.calls(text.of, moment)
    assert again <= 200 * 170
    assert again < 0.7 * first
