"""The tables' files as status and metrics show them."""

from __future__ import annotations

import dataclasses

from prometheus_client.parser import text_string_to_metric_families

from kuvasz.admin import upkeep
from kuvasz.errors import LakeError
from kuvasz.ports import Upkeep

ITEMS = Upkeep(
    target="shop.items", files=4, bytes=1000, rows=200, dead_rows=50, delete_files=2, snapshots=None, rewrites=3,
    last_at=1_700_000_000.0, next_at=None, changed_bytes=500, rewritten_bytes=900,
)  # fmt: skip


def test_status_has_averages_and_shares() -> None:
    shown = upkeep.as_json(ITEMS)
    assert (shown["average_bytes"], shown["dead_share"]) == (250, 0.25)
    assert (shown["last_at"], shown["next_at"]) == ("2023-11-14T22:13:20.000+00:00", None)
    empty = upkeep.as_json(dataclasses.replace(ITEMS, files=0, bytes=0, rows=0, dead_rows=0))
    assert (empty["average_bytes"], empty["dead_share"]) == (0, 0.0)


def test_what_is_not_known_has_no_sample() -> None:
    samples = {
        sample.name: (sample.labels, sample.value)
        for metric in text_string_to_metric_families("".join(upkeep.metrics([ITEMS])))
        for sample in metric.samples
    }
    labels = {"table": "shop.items"}
    assert samples["kuvasz_table_dead_rows"] == (labels, 50)
    assert samples["kuvasz_rewritten_bytes_total"] == (labels, 900)
    assert samples["kuvasz_last_rewrite_timestamp_seconds"] == (labels, 1_700_000_000.0)
    assert "kuvasz_table_snapshots" not in samples
    assert "kuvasz_next_maintenance_timestamp_seconds" not in samples


def test_a_look_that_fails_is_seen_though_the_next_one_is_in_time() -> None:
    """A table whose looks fail is looked at again as often as any other: it is never behind."""
    failing = dataclasses.replace(ITEMS, target="shop.others", next_at=1_700_000_600.0, error="the store refuses")
    found = {
        sample.labels["table"]: sample.value
        for metric in text_string_to_metric_families("".join(upkeep.metrics([ITEMS, failing])))
        for sample in metric.samples
        if sample.name == "kuvasz_maintenance_failing"
    }
    assert found == {"shop.items": 0, "shop.others": 1}


class _Failing:
    def run(self, target: str, *, full: bool) -> Upkeep:
        raise LakeError(f"{target}: the store is down", hint="wait")


def test_a_table_that_fails_says_why() -> None:
    answer = upkeep.maintain(_Failing(), "shop.items", full=True)
    assert answer == {"target": "shop.items", "error": "shop.items: the store is down\nhint: wait"}
