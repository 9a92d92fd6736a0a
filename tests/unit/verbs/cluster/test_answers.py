"""Answers of several processes as one."""

from __future__ import annotations

from kuvasz.verbs.cluster.answers import united


def test_one_answer_stays_as_it_is() -> None:
    answer = {"sources": [{"source": "a"}], "waiting_bytes": 3, "phase": "running"}
    assert united([answer]) == answer


def test_lists_are_of_all_and_sizes_are_added() -> None:
    one = {"version": "1", "sources": [{"source": "a"}], "waiting_bytes": 3, "ready": ["x"], "lsns": {"a": "0/1"}}
    two = {"version": "2", "sources": [{"source": "b"}], "waiting_bytes": 4, "ready": ["x"], "lsns": {"b": "0/2"}}
    assert united([one, two | {"tag": "t"}]) == {
        "version": "1", "sources": [{"source": "a"}, {"source": "b"}], "waiting_bytes": 7, "ready": ["x"],
        "lsns": {"a": "0/1", "b": "0/2"}, "tag": "t",
    }  # fmt: skip
    assert one["sources"] == [{"source": "a"}]


def test_who_did_not_answer_is_named() -> None:
    assert united([{"sources": []}], ["no kuvasz answers at x"])["silent"] == ["no kuvasz answers at x"]
