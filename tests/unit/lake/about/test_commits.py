"""Rows of commits, from what snapshots say of themselves."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from kuvasz.lake.about.commits import SeenSnapshots, news, rows_of, seen_of
from kuvasz.lake.files.snapshot_origin import SnapshotOrigin
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.notes import SEEN_PREFIX
from kuvasz.model import Operations

AT_MS = 1_800_000_000_000


def snapshot(number: int, sequence: int = 1, at_ms: int = AT_MS, **summary: str) -> dict[str, Any]:
    return {
        "snapshot-id": number, "sequence-number": sequence, "timestamp-ms": at_ms,
        "summary": {"operation": "append", **{name.replace("_", "-"): value for name, value in summary.items()}},
    }  # fmt: skip


def row(one: dict[str, Any], took: dict[int, float] | None = None) -> Any:
    (found,), _ = rows_of("shop.items", [one], SeenSnapshots(uuid="u"), took or {})
    return found


def test_a_snapshot_of_the_stream_says_all_but_what_its_commit_took() -> None:
    one = snapshot(77, 5, added_records="9", added_data_files="1", added_delete_files="2", added_files_size="527")
    one["summary"] |= {"kuvasz.position.shop_eu": json.dumps({"lsn": "0/16B3748"}), "kuvasz.commit": "c"}
    one["summary"] |= SnapshotOrigin(
        by="stream", operations=Operations(4, 3, 2), writing_s=0.5, waiting_s=0.25
    ).entry()
    assert row(one, {77: 0.125, 78: 1.0}) == {
        "target": "shop.items", "snapshot_id": 77, "sequence": 5,
        "committed_at": datetime.datetime.fromtimestamp(AT_MS / 1000, datetime.UTC), "kind": "stream",
        "positions": [("shop_eu", "0/16B3748")], "inserts": 4, "updates": 3, "deletes": 2, "added_rows": 9,
        "files": 3, "bytes": 527, "writing_seconds": 0.5, "waiting_seconds": 0.25, "committing_seconds": 0.125,
        "interval_seconds": None,
    }  # fmt: skip


def test_a_snapshot_says_how_far_many_sources_moved() -> None:
    texts = {f"kuvasz.position.s{number}": f"0/{number + 1};;;;;;;" for number in range(30)}
    one = snapshot(1)
    one["summary"] |= source_positions.packed(texts)
    assert len(one["summary"]) == 2
    assert dict(row(one)["positions"]) == {f"s{number}": f"0/{number + 1}" for number in range(30)}


@pytest.mark.parametrize(
    ("summary", "kind"),
    [
        ({"kuvasz.repair": "3", "kuvasz.anchor": "a"}, "repair"),
        ({"kuvasz.mend": "3"}, "repair"),
        ({"kuvasz.rewrite": "r"}, "maintenance"),
        ({"kuvasz.anchor": "a"}, "kuvasz"),
        ({"engine-name": "spark"}, "other"),
        ({"kuvasz.made": "copy 5 0 0 0.000 0.000", "kuvasz.anchor": "a"}, "copy"),
    ],
)
def test_who_made_a_snapshot_is_told(summary: dict[str, str], kind: str) -> None:
    one = snapshot(1)
    one["summary"] = summary
    found = row(one)
    assert found["kind"] == kind
    assert (found["inserts"] is None) is (kind != "copy")


def test_what_somebody_damaged_is_left_out() -> None:
    one = snapshot(1, added_records="many")
    one["summary"] |= {"kuvasz.position.eu": "{", "kuvasz.position.us": '{"lsn": "0/1"}', "kuvasz.made": "?"}
    found = row(one)
    assert (found["positions"], found["added_rows"], found["kind"]) == ([("us", "0/1")], 0, "other")


def test_intervals_go_on_over_what_was_seen_before() -> None:
    snapshots = [snapshot(2, 2, AT_MS + 500), snapshot(3, 3, AT_MS + 2000)]
    rows, seen = rows_of("shop.items", snapshots, SeenSnapshots(uuid="u", sequence=1, at_ms=AT_MS), {})
    assert [one["interval_seconds"] for one in rows] == [0.5, 1.5]
    assert seen == SeenSnapshots(uuid="u", sequence=3, at_ms=AT_MS + 2000)
    assert rows_of("shop.items", [], seen, {}) == ([], seen)


def test_what_was_seen_is_a_property_of_the_table_of_commits() -> None:
    seen = SeenSnapshots(uuid="u", sequence=3, at_ms=AT_MS)
    properties = {f"{SEEN_PREFIX}shop.items": seen.render()}
    assert seen_of(properties, "shop.items", "u") == seen
    assert seen_of(properties, "shop.items", "another table of that name") == SeenSnapshots(
        uuid="another table of that name"
    )
    assert seen_of({f"{SEEN_PREFIX}shop.items": "damaged"}, "shop.items", "u") == SeenSnapshots(uuid="u")
    assert seen_of({}, "shop.items", "u") == SeenSnapshots(uuid="u")


class Listed:
    """The snapshots of a table."""

    def __init__(self, *snapshots: dict[str, Any]) -> None:
        self._snapshots = snapshots
        self.sequence = max((one["sequence-number"] for one in snapshots), default=0)

    def newer_than(self, sequence: int, most: int | None = None) -> list[dict[str, Any]]:
        return [one for one in self._snapshots if one["sequence-number"] > sequence][:most]


def of(number: int, *, again: int = 0) -> dict[str, Any]:
    """A snapshot, or the one that has its sequence number by now."""
    return snapshot(100 * again + number, number, AT_MS + 1000 * (number + again))


SEEN = SeenSnapshots(uuid="u", sequence=3, at_ms=AT_MS + 3000)


@pytest.mark.parametrize(
    ("snapshots", "told"),
    [
        ([of(1), of(2), of(3)], []),
        ([of(2), of(3), of(4), of(5)], [4, 5]),
        ([of(5), of(6)], [5, 6]),  # what was told was expired
        ([of(1)], []),  # an older catalog was put back
        ([of(1), of(2, again=5)], [2]),  # and kuvasz has gone on
        ([of(1), of(2, again=5), of(3, again=5), of(4, again=5)], [2, 3, 4]),
        ([of(3, again=5)], [3]),
        ([], []),
    ],
)
def test_what_comes_after_an_older_catalog_was_put_back_is_news(
    snapshots: list[dict[str, Any]], told: list[int]
) -> None:
    seen, found = news(Listed(*snapshots), SEEN)
    assert [one["sequence-number"] for one in found] == told
    _, seen = rows_of("shop.items", found, seen, {})
    more = [*snapshots, of(max([one["sequence-number"] for one in snapshots], default=0) + 1, again=50)]
    _, found = news(Listed(*more), seen)
    assert found == more[-1:], "once it was seen, it goes on from there"


def test_as_many_are_news_as_are_asked_for() -> None:
    assert news(Listed(of(3), of(4), of(5)), SEEN, 1) == (SEEN, [of(4)])
    assert news(Listed(of(1), of(2, again=5), of(3, again=5)), SEEN, 1)[1] == [of(2, again=5)]
    assert news(Listed(of(1), of(2)), SeenSnapshots(uuid="u"), 1) == (SeenSnapshots(uuid="u"), [of(1)])
