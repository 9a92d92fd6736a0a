"""The manifest: a line for each part, with what it has not and why."""

from __future__ import annotations

import datetime

from kuvasz.verbs.support import manifest
from kuvasz.verbs.support.part import Part, PartFiles, PartOutcome

AT = datetime.datetime(2026, 11, 25, 21, 34, 52, tzinfo=datetime.UTC)


def outcome(name: str, gathered: PartFiles, why_not: str = "") -> PartOutcome:
    part = Part(name=name, what=f"what {name} is", limit_s=1, gather=PartFiles)
    return PartOutcome(part=part, gathered=gathered, why_not=why_not)


def test_what_is_there_what_is_not_and_why() -> None:
    found = [
        outcome("whole", PartFiles(files={"a.txt": ""})),
        outcome("half", PartFiles(files={"b.txt": ""}, notes=("one is away",))),
        outcome("none", PartFiles(), "nobody answers"),
    ]
    lines = manifest.lines(found, {"a.txt": b"12345", "b.txt": b""})
    assert [line.split(maxsplit=2)[:2] for line in manifest.render(lines).splitlines()[2:]] == [
        ["whole", "there"], ["half", "in"], ["none", "MISSING"]]  # fmt: skip
    page = manifest.page(lines, AT)
    assert "a.txt (5 B)" in page
    assert "b.txt (0 B); one is away" in page
    assert "nobody answers" in page
    assert "2026-11-25T21:34:52+00:00" in page
    assert lines[1].as_json() == {
        "part": "half", "what": "what half is", "files": {"b.txt": 0}, "missing": ["one is away"]}  # fmt: skip
