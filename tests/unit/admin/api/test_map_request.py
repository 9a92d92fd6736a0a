"""The map's text by HTTP: given out as it is, taken in as a whole, and what it was."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from kuvasz.config.load import load
from tests.support.writable_world import WritableWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WritableWorld:
    monkeypatch.setenv("PW", "a-secret")
    return WritableWorld(tmp_path)


def test_it_is_given_out_to_the_letter_and_that_is_told(
    world: WritableWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kuvasz"):
        status, text = world.ask("/api/map/export", method="GET")
    assert (status, text) == (200, world.file.read_text())
    told = [vars(record) for record in caplog.records if vars(record).get("event") == "audit"]
    assert [(one["what"], one["status"]) for one in told] == [("GET /api/map/export", 200)]


def test_what_comes_in_is_written_and_put_into_use(world: WritableWorld) -> None:
    text = world.file.read_text().replace("others: {", "more:\n    others: {")
    status, found = world.ask("/api/map/import", body={"text": text, "by": "ann"})
    assert (status, found["verb"]) == (202, "import")
    assert [one["added"] for one in found["changed"]] == [["more"], ["more"]]
    assert world.file.read_text() == text
    assert [one.as_json() for one in world.taken] == [{name: found[name] for name in found if name != "verb"}]
    versions = world.ask("/api/map/versions", method="GET")[1]
    assert versions[0]["bytes"] == len(text.encode())


def test_the_same_text_changes_nothing(world: WritableWorld) -> None:
    status, found = world.ask("/api/map/import", body={"text": world.file.read_text()})
    assert (status, found["changed"], world.taken) == (200, [], [])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("items:", "items: {typ: clone}", "typ"),
        ("@eu1/", "@elsewhere/", "a reference that the map has not"),
        ("items:", "items: {partitions_regex: 'i.*'}", "cannot change while kuvasz runs"),
    ],
)
def test_what_is_faulty_new_or_cannot_follow_leaves_it_as_it_was(
    world: WritableWorld, before: str, after: str, told: str
) -> None:
    was = world.file.read_text()
    status, refused = world.ask("/api/map/import", body={"text": was.replace(before, after)})
    assert (status, told in refused["error"]) == (409, True), refused
    assert (world.file.read_text(), world.taken) == (was, [])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("LAKE.db", "ELSEWHERE.db", "lake.uri counts from the next start on"),
        ("map: {", "copy: {from: 'postgresql://evil'}\nmap: {", "copy.from would be sent the password"),
    ],
)
def test_what_is_secret_is_not_sent_elsewhere(world: WritableWorld, before: str, after: str, told: str) -> None:
    """What stands beside a `${…}`, and what takes over a source's password, says where it goes."""
    was = world.file.read_text()
    before = before.replace("LAKE", str(world.file.parent / "lake"))
    status, refused = world.ask("/api/map/import", body={"text": was.replace(before, after)})
    assert (status, told in refused["error"]) == (409, True), refused
    assert "kuvasz map import" in refused["hint"]
    assert (world.file.read_text(), world.taken) == (was, [])


def test_what_a_person_wrote_for_the_next_start_stays(world: WritableWorld) -> None:
    text = world.file.read_text().replace("pipeline: {", "pipeline: {workers: 3, ")
    world.file.write_text(text)
    assert world.ask("/api/map/reload")[0] == 202
    world.loaded = load(world.store)
    assert world.ask("/api/map/import", body={"text": text.replace("# the end", "# really")})[0] == 202


def test_a_map_is_longer_than_other_requests(world: WritableWorld) -> None:
    text = world.file.read_text() + "# and more\n" * 20_000
    assert world.ask("/api/map/import", body={"text": text})[0] == 202


def test_a_map_that_is_read_only_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")
    world = WritableWorld(tmp_path, is_writable=False)
    assert world.ask("/api/map/import", body={"text": "x"})[0] == 405


@pytest.mark.parametrize("version", ["x", "0", "-1", "9" * 40])
def test_a_version_is_a_number(world: WritableWorld, version: str) -> None:
    assert world.ask(f"/api/map/export?version={version}", method="GET")[0] == 400


def test_a_version_that_is_not_there_is_not_found(world: WritableWorld) -> None:
    assert world.ask("/api/map/export?version=7", method="GET")[0] == 404
    assert json.dumps(world.ask("/api/map/export?v=7", method="GET")[1]).count("unknown parameter") == 1


def test_a_map_of_no_file_has_no_text(world: WritableWorld) -> None:
    world.loaded = None
    for path in ("export", "versions"):
        assert world.ask(f"/api/map/{path}", method="GET")[0] == 409
