from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest

from kuvasz.admin import views
from kuvasz.admin.metrics import Metrics
from kuvasz.admin.observer import Snapshot
from kuvasz.admin.pages.fleet_page import fleet_page
from kuvasz.admin.pages.list_part import ListSelection
from kuvasz.admin.pages.status_parts import StatusParts
from kuvasz.admin.views import ErrorView
from kuvasz.errors import DecodeError, KuvaszError, RowTooLarge, SchemaError, TableError
from kuvasz.parking.logs import ParkedView
from kuvasz.state.tables import State, TableState
from kuvasz.state.verdicts.verdict import Verdict
from tests.support import costs, fleets
from tests.support.snapshots import CLOCK, NOW, SLOT, STAGED, snapshot


@pytest.mark.parametrize(("us", "shown"), [(2**63 - 1, "9999-12-31T23:59:59"), (-(2**63), "0001-01-01T00:00:00")])
def test_a_time_beyond_all_calendars_is_shown(us: int, shown: str) -> None:
    """A source said so before such times were taken for their first or last: the status of all others is shown."""
    moment = snapshot()
    tables = tuple(dataclasses.replace(table, last_commit_us=us) for table in moment.view.tables)
    found = views.status(dataclasses.replace(moment, view=dataclasses.replace(moment.view, tables=tables)))
    assert found["sources"][0]["tables"][0]["newest_change_at"] == f"{shown}.000+00:00"
    assert views.instant(1e300).startswith("9999")


def test_status_of_a_good_day() -> None:
    status = json.loads(json.dumps(views.status(snapshot())))
    (source,) = status.pop("sources")
    (table,) = source.pop("tables")
    status.pop("version")
    assert status.pop("maintenance") == []
    assert status == {
        "phase": "running", "started_at": "2023-11-14T22:11:40.000+00:00", "at": "2023-11-14T22:13:20.000+00:00",
        "waiting_bytes": 10, "memory_bytes": 1 << 30, "commit_conflicts": 2, "live": True, "ready": True,
        "released": [], "log": None,
    }  # fmt: skip
    assert source == {
        "source": "shop_eu", "state": "streaming", "error": None, "received_lsn": "0/500", "durable_lsn": "0/500",
        "confirmed_lsn": "0/480", "staged_lsn": None, "rows": 7, "lag_seconds": 0.0, "lag_bytes": 0,
        "fresh_at": "2023-11-14T22:13:17.000+00:00", "last_message_at": "2023-11-14T22:13:18.000+00:00",
        "is_paused": False, "retry_at": None,
        "slot": {
            "retained_bytes": 4096, "safe_bytes": None, "status": "reserved", "wal_bytes_per_second": None,
            "seconds_left": None,
        },
    }  # fmt: skip
    assert table == {
        "table": "public.items", "mapped_as": None, "target": "shop.items", "tenant": None, "state": "streaming",
        "since": "2023-11-14T22:12:20.000+00:00", "error": None, "retry_at": None,
        "is_resync_due": False, "why_copy": None, "waits_for": None, "rows": 7, "copied_rows": 40, "rejected_rows": 0,
        "copy_progress": 1.0, "copy_rows_per_second": None, "copy_seconds_left": None, "copy_resumes_at": None,
        "commits": 3, "last_commit_seconds": 0.05, "newest_change_at": "2000-01-01T00:00:01.000+00:00",
        "durable_lsn": "0/500", "valid_through": "2023-11-14T22:13:15.000+00:00", "parked": None,
        "verified": None,
    }  # fmt: skip


@pytest.mark.parametrize("state", [state for state in State if state is not State.STREAMING])
def test_a_table_that_does_not_stream_is_valid_through_no_time(state: State) -> None:
    (source,) = views.status(snapshot(table={"state": state}))["sources"]
    assert (source["tables"][0]["durable_lsn"], source["tables"][0]["valid_through"]) == (None, None)


def test_what_is_parked_of_a_table_is_shown() -> None:
    parked = ParkedView(bytes=700, since=NOW - 60, first_lsn=0x400, is_full=True)
    (source,) = views.status(snapshot(parked={("shop.items", "shop_eu"): parked}))["sources"]
    assert (source["tables"][0]["durable_lsn"], source["tables"][0]["valid_through"]) == (None, None)
    assert source["tables"][0]["parked"] == {
        "bytes": 700, "since": "2023-11-14T22:12:20.000+00:00", "oldest_lsn": "0/400", "is_full": True,
    }  # fmt: skip


def test_what_a_comparison_found_is_shown_and_what_may_quote_a_row_to_those_who_may() -> None:
    verdicts = {
        ("shop.items", "shop_eu"): Verdict(at=NOW - 60, lsn="0/400", rows=7, differences=3, left=1, error="'x'")
    }
    (source,) = views.status(snapshot(verdicts=verdicts), ErrorView(is_trusted=True))["sources"]
    assert source["tables"][0]["verified"] == {
        "at": "2023-11-14T22:12:20.000+00:00", "lsn": "0/400", "rows": 7, "differences": 3, "left": 1, "error": "'x'",
    }  # fmt: skip
    (source,) = views.status(snapshot(verdicts=verdicts))["sources"]
    assert source["tables"][0]["verified"]["error"] == views.WITHHELD
    (source,) = views.status(snapshot(verdicts={("shop.items", "shop_eu"): Verdict(error="gone")}))["sources"]
    assert (source["tables"][0]["verified"]["at"], source["tables"][0]["verified"]["lsn"]) == (None, None)


def test_an_error_is_shown_with_its_hint() -> None:
    moment = snapshot(table={"state": State.ERROR, "error": DecodeError("no number", hint="look")})
    (source,) = views.status(moment, ErrorView(is_trusted=True))["sources"]
    assert source["tables"][0]["error"] == {
        "kind": "DecodeError", "message": "no number", "hint": "look", "retry": "human",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            DecodeError("value 'Jane'"),
            "it may quote a row, so it is shown to those who have the token: kuvasz status",
        ),
        (
            TableError("as it was noted"),
            "it may quote a row, so it is shown to those who have the token: kuvasz status",
        ),
        (SchemaError("no key"), "no key"),
        (RowTooLarge("300 MB"), "300 MB"),
    ],
)
def test_what_may_quote_a_row_is_not_for_everybody(error: KuvaszError, message: str) -> None:
    (source,) = views.status(snapshot(table={"state": State.ERROR, "error": error}))["sources"]
    assert source["tables"][0]["error"]["message"] == message


class Walked(tuple[TableState, ...]):
    """Tables that count how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[TableState]:
        Walked.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("make", [views.status, views.readyz, Metrics().render])
def test_the_work_grows_with_the_tables_and_not_with_their_product_with_the_sources(
    make: Callable[[Snapshot], object],
) -> None:
    """`python -m benchmarks.micro_status` says how long it takes."""
    good = snapshot()
    walks = []
    for count in (1, 50):
        names = [f"shop_{number}" for number in range(count)]
        sources = tuple(dataclasses.replace(good.view.sources[0], name=name) for name in names)
        tables = Walked(dataclasses.replace(good.view.tables[0], source=name) for name in names)
        view = dataclasses.replace(good.view, sources=sources, tables=tables)
        Walked.walks = 0
        make(dataclasses.replace(good, view=view, facts=dict.fromkeys(names, good.facts["shop_eu"])))
        walks.append(Walked.walks)
    assert walks[0] == walks[1] <= 2


@pytest.mark.parametrize(
    ("source", "facts", "seconds", "size"),
    [
        ({}, {}, 0.0, 0),
        ({"is_pending": True}, {}, 3.0, 0),
        ({"state": "waiting"}, {}, 3.0, 0),
        ({"confirmable_lsn": 0x400}, {"is_behind": True}, 3.0, 0x100),
        ({"received_lsn": 0x900}, {}, 0.0, 0x400),
        ({}, {"fresh_at": None}, None, 0),
        ({}, {"slot": None}, 0.0, None),
        ({"confirmable_lsn": 0}, {"fresh_at": None, "is_behind": True}, None, None),
    ],
)
def test_lag(source: dict, facts: dict, seconds: float | None, size: int | None) -> None:
    moment = snapshot(source=source, facts=facts)
    (seen,) = moment.view.sources
    assert (moment.lag_seconds(seen), moment.lag_bytes(seen)) == (seconds, size)


def test_live_until_silence_or_standstill() -> None:
    assert views.livez(snapshot(heard_at=CLOCK - 299, moved_at=CLOCK - 299)) == []
    assert views.livez(snapshot(heard_at=CLOCK - 301)) == ["nothing came from any source for 301 s"]
    assert views.livez(snapshot(moved_at=CLOCK - 400)) == ["changes wait and nothing was committed for 400 s"]


@pytest.mark.parametrize(
    ("state", "error", "reasons"),
    [
        (State.STREAMING, None, []),
        (State.PAUSED, None, []),
        (State.ERROR, None, []),
        (State.NEW, None, ["source shop_eu, table public.items: new"]),
        (State.COPYING, None, ["source shop_eu, table public.items: copying"]),
        (State.CATCHING_UP, None, ["source shop_eu, table public.items: catching_up"]),
        (State.NEW, "connection refused", ["source shop_eu: waiting: connection refused"]),
        (State.STREAMING, "connection refused", []),
    ],
)
def test_ready_when_every_table_is_settled(state: State, error: str | None, reasons: list[str]) -> None:
    assert (
        views.readyz(
            snapshot(table={"state": state}, source={"error": error, "state": "waiting" if error else "streaming"})
        )
        == reasons
    )


def test_a_source_that_waits_for_a_person_is_not_ready() -> None:
    lost = {"error": "slot kuvasz_shop_eu is gone\nhint: copy it again", "state": "error"}
    assert views.readyz(snapshot(source=lost)) == ["source shop_eu: error: slot kuvasz_shop_eu is gone"]


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ({"state": "starting"}, ["source shop_eu: its tables are not known yet"]),
        ({"state": "waiting", "error": "no answer\nhint: start it"}, ["source shop_eu: waiting: no answer"]),
        ({"state": "streaming"}, []),
    ],
)
def test_a_source_whose_tables_nobody_has_seen_yet_is_not_ready(source: dict, reasons: list[str]) -> None:
    """They come of a pattern: before its first look, or while its server is away, the map has none of them."""
    seen = snapshot(source=source)
    view = dataclasses.replace(seen.view, tables=())
    assert views.readyz(dataclasses.replace(seen, view=view)) == reasons


def test_not_ready_before_and_after() -> None:
    assert views.readyz(snapshot(phase="starting")) == ["kuvasz is starting"]
    assert views.readyz(snapshot(phase="stopping")) == ["kuvasz is stopping"]


def test_copy_progress_is_unknown_without_a_copy() -> None:
    (table,) = snapshot(table={"copy_total": 0, "copy_done": 0}).view.tables
    assert views.copy_progress(table) is None


def test_a_running_copy_says_how_fast_it_is_and_how_long_it_goes_on() -> None:
    copying = {"state": State.COPYING, "copy_began": CLOCK - 20, "copied_rows": 3000, "copy_done": 1, "copy_total": 4}
    ((one,),) = [found["tables"] for found in views.status(snapshot(table=copying))["sources"]]
    assert (one["copy_rows_per_second"], one["copy_seconds_left"]) == (150.0, 60.0)


def test_a_copy_that_waits_for_its_hours_says_until_when() -> None:
    ((one,),) = [found["tables"] for found in views.status(snapshot(table={"copy_resumes_at": NOW}))["sources"]]
    assert one["copy_resumes_at"] == "2023-11-14T22:13:20.000+00:00"


@pytest.mark.parametrize("facts", [
    {"state": State.STREAMING}, {"copy_done": 0}, {"copy_began": 0.0},
])  # fmt: skip
def test_nothing_is_said_of_the_speed_of_no_copy(facts: dict[str, object]) -> None:
    copying = {"state": State.COPYING, "copy_began": CLOCK - 20, "copied_rows": 3000, "copy_done": 1, "copy_total": 4}
    ((one,),) = [found["tables"] for found in views.status(snapshot(table=copying | facts))["sources"]]
    assert (one["copy_rows_per_second"], one["copy_seconds_left"]) == (None, None)


def test_errors_tell_of_the_next_attempt() -> None:
    found = views.status(snapshot(source={"retry_at": CLOCK + 5}, table={"retry_at": CLOCK + 15}))
    (source,) = found["sources"]
    (table,) = source["tables"]
    assert source["retry_at"] == "2023-11-14T22:13:25.000+00:00"
    assert (table["retry_at"], table["is_resync_due"]) == ("2023-11-14T22:13:35.000+00:00", False)


def test_a_limited_slot_tells_how_long_it_lasts() -> None:
    first = dataclasses.replace(SLOT, safe_bytes=5000)
    second = dataclasses.replace(first, safe_bytes=4000, wal_end=SLOT.wal_end + 1000, asked_at=SLOT.asked_at + 10)
    third = dataclasses.replace(second, safe_bytes=1000, wal_end=SLOT.wal_end + 4000, asked_at=SLOT.asked_at + 20)
    assert first.seconds_left is None
    assert (second.after(first).wal_rate, second.after(first).seconds_left) == (100.0, 40.0)
    assert third.after(second.after(first)).seconds_left == 5.0  # (100 + 300) / 2 bytes a second
    assert SLOT.after(SLOT).seconds_left is None
    (source,) = views.status(snapshot(facts={"slot": second.after(first)}))["sources"]
    assert (source["slot"]["wal_bytes_per_second"], source["slot"]["seconds_left"]) == (100.0, 40.0)


def test_the_staged_log_is_told_with_what_is_staged_of_each_source() -> None:
    good = views.status(snapshot())
    assert (good["log"], good["sources"][0]["staged_lsn"]) == (None, None)
    told = views.status(snapshot(staged=dataclasses.replace(STAGED, is_full=True, error="it is away")))
    assert told["sources"][0]["staged_lsn"] == "0/490"
    assert told["log"] == {
        "waiting_bytes": 70, "is_full": True, "objects": 3, "staged_at": told["log"]["staged_at"],
        "error": "it is away",
        "groups": [{"group": "blue", "objects": 2, "behind_seconds": 61.5, "is_applied": False}],
    }  # fmt: skip
    assert told["log"]["staged_at"] < told["at"]


#: What is shown of a fleet -> how, and the calls that each further source, of five tables, may cost. A busy machine
#: makes a time longer, and not these; `benchmarks.micro_status` has milliseconds.
SHOWN: dict[str, tuple[Callable[[Snapshot], object], int]] = {
    "status": (lambda moment: json.dumps(views.status(moment)), 360),
    "metrics": (lambda moment: Metrics().render(moment), 150),
    "page": (
        lambda moment: fleet_page(StatusParts(moment, ErrorView()), ListSelection(), ListSelection(), {}), 115
    ),
    "readyz": (views.readyz, 12),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_source_more_costs_what_is_known(name: str) -> None:
    show, most = SHOWN[name]
    few, many = (costs.calls(show, fleets.many(number)) for number in (100, 200))
    assert few < many <= few + 100 * most


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_each_of_five_thousand_sources_costs_no_more_than_each_of_hundreds(name: str) -> None:
    show, _ = SHOWN[name]
    few, many = costs.cpu_s(show, fleets.many(500), rounds=5), costs.cpu_s(show, fleets.many(5_000), rounds=2)
    assert many < 3 * 10 * few, "each looked at all others"
