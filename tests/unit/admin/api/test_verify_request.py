"""The command that a request for a comparison becomes, and what comes of its answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin.api import verify_request
from kuvasz.config.load import load
from tests.support.writable_world import WritableWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WritableWorld:
    monkeypatch.setenv("PW", "a-secret")
    return WritableWorld(tmp_path)


def command(monkeypatch: pytest.MonkeyPatch, code: int, out: object, err: str = "") -> None:
    """Have the command end so; it says on stdout what it was asked, too."""
    text = (
        "import json, sys; asked = json.load(sys.stdin); sys.stderr.write(sys.argv[2]);"
        "out = json.loads(sys.argv[1]); print(out if isinstance(out, str) else json.dumps([asked, *out]));"
        f"sys.exit({code})"
    )
    program = (sys.executable, "-c", text, json.dumps(out), err)
    monkeypatch.setattr(verify_request.VerificationRequests.__init__, "__defaults__", (program,))


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5])
def test_what_it_reports_is_answered(world: WritableWorld, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    command(monkeypatch, code, [{"target": "shop.items", "error": "not a-secret"}])
    world.loaded = load(world.file, None, {"pipeline.workers": "3"})
    body: dict[str, Any] = {"table": "items", "sid": "-x", "fix": True}
    status, found = world.ask("/api/verify", body=body, secrets={"a-secret"})
    asked, report = found["reports"]
    assert (status, found["exit_code"], report["error"]) == (200, code, "not ***")
    assert asked == [
        "verify", "--json", "--config", str(world.file), "--set", "pipeline.workers=3", "--table=items", "--sid=-x",
        "--fix",
    ]  # fmt: skip


def test_one_that_fails_says_why(world: WritableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    command(monkeypatch, 2, "", "WARN of Spark\nerror: the map has no table 'x'\nhint: `kuvasz plan` lists them\n")
    status, refused = world.ask("/api/verify", body={"table": "x"})
    assert (status, refused["error"], refused["hint"]) == (
        409, "the map has no table 'x'", "`kuvasz plan` lists them",
    )  # fmt: skip
    command(monkeypatch, 0, "no JSON")
    assert world.ask("/api/verify")[1]["error"] == "the comparison ended without a report"


def test_without_a_file_nobody_can_compare(world: WritableWorld) -> None:
    world.loaded = None
    assert world.ask("/api/verify")[0] == 409
