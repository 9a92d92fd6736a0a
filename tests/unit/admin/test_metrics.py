from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kuvasz.admin import upkeep
from kuvasz.admin.metrics import HELP, Metrics
from kuvasz.admin.observer import Snapshot
from kuvasz.config.model import MetricsScope
from kuvasz.parking.logs import ParkedView
from kuvasz.ports import Receipt
from kuvasz.state.progress import Durable
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.snapshots import CLOCK, NOW, STAGED, snapshot

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


PER_SOURCE = MetricsScope.PER_SOURCE


def families(moment: Snapshot, metrics: Metrics | None = None) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return sample name -> labels -> value."""
    found: dict[str, dict] = {}
    for family in text_string_to_metric_families((metrics or Metrics(PER_SOURCE)).render(moment).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


SOURCE = (("source", "shop_eu"),)
TABLE = (("source", "shop_eu"), ("table", "shop.items"))


def test_metrics_of_a_good_day() -> None:
    found = families(snapshot())
    assert found["kuvasz_lag_seconds"] == {SOURCE: 0.0}
    assert found["kuvasz_lag_bytes"] == {SOURCE: 0.0}
    assert found["kuvasz_freshness_timestamp_seconds"] == {SOURCE: NOW - 3}
    assert found["kuvasz_slot_retained_bytes"] == {SOURCE: 4096.0}
    assert found["kuvasz_last_wire_message_timestamp_seconds"] == {SOURCE: NOW - 2}
    assert found["kuvasz_copy_progress_ratio"] == {TABLE: 1.0}
    rows = {dict(labels)["op"]: value for labels, value in found["kuvasz_rows_total"].items()}
    assert rows == {"insert": 4.0, "update": 2.0, "delete": 1.0}
    assert found["kuvasz_copied_rows_total"] == {TABLE: 40.0}
    assert found["kuvasz_commit_conflicts_total"] == {(): 2.0}
    assert found["kuvasz_waiting_bytes"] == {(): 10.0}
    of_source = {dict(labels)["state"]: value for labels, value in found["kuvasz_source_state"].items()}
    assert [state for state, value in of_source.items() if value] == ["streaming"]
    states = {dict(labels)["state"]: value for labels, value in found["kuvasz_table_state"].items()}
    assert states == {state.value: float(state is State.STREAMING) for state in State}
    ((labels, one),) = found["kuvasz_build_info"].items()
    assert (one, [name for name, _ in labels]) == (1.0, ["python", "version"])


def test_the_staged_log_is_shown_where_there_is_one() -> None:
    assert not [name for name in families(snapshot(), Metrics()) if "log" in name or "staged" in name]
    found = families(snapshot(staged=STAGED), Metrics())
    assert found["kuvasz_log_waiting_bytes"] == {(): 70.0}
    assert found["kuvasz_log_objects"] == {(): 3.0}
    assert found["kuvasz_log_failing"] == {(): 0.0}
    assert found["kuvasz_log_staged_timestamp_seconds"] == {(): NOW - 1}
    assert found["kuvasz_staged_lsn"] == {(("source", "shop_eu"),): float(0x490)}
    assert found["kuvasz_log_group_objects"] == {(("log_group", "blue"),): 2.0}
    assert found["kuvasz_log_group_behind_seconds"] == {(("log_group", "blue"),): 61.5}
    away = dataclasses.replace(STAGED, error="the store is away", staged_at=None, lsns={})
    found = families(snapshot(staged=away), Metrics())
    assert found["kuvasz_log_failing"] == {(): 1.0}
    assert not {"kuvasz_log_staged_timestamp_seconds", "kuvasz_staged_lsn"} & set(found)


def test_a_table_is_counted_for_all_of_its_sources_together() -> None:
    good = snapshot()
    (one,) = good.view.tables
    others = [
        dataclasses.replace(one, source="shop_us", state=State.ERROR, copy_done=1),
        dataclasses.replace(one, source="shop_ap", copy_total=0),
        dataclasses.replace(one, target="shop.others", rows=1, inserts=1, updates=0, deletes=0),
    ]
    parked = {
        ("shop.items", name): ParkedView(bytes=700, since=since, first_lsn=1, is_full=False)
        for name, since in (("shop_us", NOW - 60), ("shop_ap", NOW - 90))
    }
    view = dataclasses.replace(good.view, tables=(one, *others), parked=parked)
    found = families(dataclasses.replace(good, view=view), Metrics())
    items, other = (("table", "shop.items"),), (("table", "shop.others"),)
    states = {dict(labels)["state"]: value for labels, value in found["kuvasz_table_state"].items()
              if dict(labels)["table"] == "shop.items"}  # fmt: skip
    assert {state: value for state, value in states.items() if value} == {"streaming": 2.0, "error": 1.0}
    assert found["kuvasz_copy_progress_ratio"] == {items: 0.25, other: 1.0}
    assert found["kuvasz_parked_bytes"] == {items: 1400.0, other: 0.0}
    assert found["kuvasz_parked_since_timestamp_seconds"] == {items: NOW - 90}
    assert found["kuvasz_copied_rows_total"] == {items: 120.0, other: 40.0}
    assert found["kuvasz_rows_total"][(("op", "insert"), *items)] == 12.0


def test_copies_of_one_table_add_up_and_the_longest_counts() -> None:
    copying = {"state": State.COPYING, "copy_began": CLOCK - 20, "copied_rows": 3000, "copy_done": 1, "copy_total": 4}
    good = snapshot(table=copying)
    (one,) = good.view.tables
    others = [dataclasses.replace(one, source="shop_us", copy_done=3, copied_rows=9000),
              dataclasses.replace(one, source="shop_ap", copy_done=0, copy_resumes_at=NOW),
              dataclasses.replace(one, target="shop.others", state=State.STREAMING)]  # fmt: skip
    both = dataclasses.replace(good, view=dataclasses.replace(good.view, tables=(one, *others)))
    found = families(both, Metrics())
    items = (("table", "shop.items"),)
    assert found["kuvasz_copy_rows_per_second"] == {items: 600.0}
    assert found["kuvasz_copy_seconds_left"] == {items: 60.0}
    assert found["kuvasz_copies_waiting"] == {items: 1.0, (("table", "shop.others"),): 0.0}
    assert "kuvasz_copy_seconds_left" not in families(snapshot())


def test_a_table_is_valid_through_what_the_source_has_that_is_least_far() -> None:
    good, items, name = snapshot(), (("table", "shop.items"),), "kuvasz_valid_through_timestamp_seconds"
    assert families(good, Metrics())[name] == {items: NOW - 5}
    (one,), (eu,) = good.view.tables, good.view.sources
    behind = Durable(confirmable=0x400, received=0x400)
    sources = (eu, dataclasses.replace(eu, name="shop_us", confirmable_lsn=0x400, durable=behind))
    for state, valid in ((State.STREAMING, {items: NOW - 11}), (State.PAUSED, None)):
        tables = (one, dataclasses.replace(one, source="shop_us", state=state))
        facts = {**good.facts, "shop_us": good.facts["shop_eu"]}
        view = dataclasses.replace(good.view, sources=sources, tables=tables)
        assert families(dataclasses.replace(good, view=view, facts=facts), Metrics()).get(name) == valid
    gone = dataclasses.replace(good.view, tables=(one, dataclasses.replace(one, source="shop_gone")))
    assert name not in families(dataclasses.replace(good, view=gone), Metrics())


def test_what_comparisons_found_is_told_of_the_oldest_and_with_rows_of_nobody() -> None:
    assert "kuvasz_verified_timestamp_seconds" not in families(snapshot())
    good = snapshot(verdicts={
        ("shop.items", "shop_eu"): Verdict(at=NOW - 60, left=1),
        ("shop.items", "shop_us"): Verdict(at=NOW - 90, left=2),
        ("shop.items", "shop_ap"): Verdict(error="gone", tried_at=NOW), ("shop.items", ""): Verdict(at=NOW, left=4),
        ("shop.gone", "shop_eu"): Verdict(at=1.0, left=9),
    })  # fmt: skip
    (one,) = good.view.tables
    others = [dataclasses.replace(one, source=name) for name in ("shop_us", "shop_ap")]
    both = dataclasses.replace(good, view=dataclasses.replace(good.view, tables=(one, *others)))
    found = families(both, Metrics())
    items = (("table", "shop.items"),)
    assert found["kuvasz_verified_timestamp_seconds"] == {items: NOW - 90}
    assert found["kuvasz_differing_keys"] == {items: 7.0}
    found = families(both, Metrics(MetricsScope.PER_SOURCE))
    assert sorted(found["kuvasz_differing_keys"].values()) == [1.0, 2.0]


def test_a_source_that_was_never_compared_is_counted_beside_those_that_were() -> None:
    """Of the oldest of those that were nobody would ever see it."""
    verdicts = {
        ("shop.items", "shop_eu"): Verdict(at=NOW - 60, tried_at=NOW - 60),
        ("shop.items", "shop_us"): Verdict(error="no snapshot in 60 s", tried_at=NOW - 60),
        ("shop.items", "shop_ap"): Verdict(error="initial: skip", tried_at=NOW - 60, is_left_out=True),
    }
    one = snapshot(verdicts=verdicts)
    (table,) = one.view.tables
    tables = (table, *(dataclasses.replace(table, source=name) for name in ("shop_us", "shop_ap")))
    found = families(dataclasses.replace(one, view=dataclasses.replace(one.view, tables=tables)), Metrics())
    items = (("table", "shop.items"),)
    assert found["kuvasz_comparisons_failing"] == {items: 1.0}
    assert found["kuvasz_verified_timestamp_seconds"] == {items: NOW - 60}
    assert "kuvasz_comparisons_failing" not in families(snapshot(), Metrics())


def test_names_are_escaped_and_cost_no_page() -> None:
    odd = 'a"b\\c\nd\udc80'
    found = families(snapshot(table={"target": odd}), Metrics())
    assert found["kuvasz_copied_rows_total"] == {(("table", 'a"b\\c\nd\\udc80'),): 40.0}


def test_what_is_parked_is_counted() -> None:
    found = families(snapshot())
    assert found["kuvasz_parked_bytes"] == {TABLE: 0.0}
    assert "kuvasz_parked_since_timestamp_seconds" not in found
    parked = ParkedView(bytes=700, since=NOW - 60, first_lsn=0x400, is_full=False)
    found = families(snapshot(parked={("shop.items", "shop_eu"): parked}))
    assert found["kuvasz_parked_bytes"] == {TABLE: 700.0}
    assert found["kuvasz_parked_since_timestamp_seconds"] == {TABLE: NOW - 60}


def test_what_is_not_known_is_left_out_rather_than_zero() -> None:
    found = families(snapshot(facts={"slot": None, "fresh_at": None}, source={"last_message_at": None}))
    unknown = {"lag_seconds", "lag_bytes", "freshness_timestamp_seconds", "slot_retained_bytes",
               "last_wire_message_timestamp_seconds"}  # fmt: skip
    assert not {f"kuvasz_{name}" for name in unknown} & found.keys()


def test_only_commits_are_timed() -> None:
    metrics = Metrics()
    metrics.note(Receipt(target="t", positions={}, rows=1, snapshot_id=None, seconds=9.0))
    metrics.note(Receipt(target="t", positions={}, rows=1, snapshot_id=4, seconds=0.2))
    found = families(snapshot(), metrics)
    assert found["kuvasz_commit_duration_seconds_count"] == {(): 1.0}
    assert found["kuvasz_commit_duration_seconds_sum"] == {(): 0.2}


def test_every_metric_has_a_sentence_and_a_place_in_the_docs() -> None:
    page = DOCS.read_text()
    rendered = Metrics().render(snapshot(staged=STAGED)).decode()
    names = set(re.findall(r"^# TYPE (kuvasz_\w+) ", rendered, re.MULTILINE))
    names = {name for name in names if not name.endswith("_created")}
    assert {name.removesuffix("_total") for name in names} == {
        *HELP, *upkeep.GAUGES, *upkeep.COUNTERS, "kuvasz_commit_duration_seconds",
    }  # fmt: skip
    texts = [*HELP.values(), *(text for text, _ in (upkeep.GAUGES | upkeep.COUNTERS).values())]
    assert [text for text in texts if not text.endswith(".")] == []
    assert [name for name in names if f"`{name}" not in page] == []
