"""What is answered has the shape that is told, and no field that is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kuvasz.admin import upkeep, views
from kuvasz.admin.api.shapes import SHAPES, ref
from kuvasz.admin.views import ErrorView
from kuvasz.errors import DecodeError, LakeError
from kuvasz.parking.logs import ParkedView
from kuvasz.ports import Upkeep
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.admin_world import AdminWorld
from tests.support.snapshots import NOW, STAGED, snapshot

UPKEEP = Upkeep(
    target="shop.items", files=1, bytes=2, rows=3, dead_rows=0, delete_files=0, snapshots=None, rewrites=1,
    last_at=1.5, next_at=None, changed_bytes=0, rewritten_bytes=0,
)  # fmt: skip


def strict(schema: Any) -> Any:
    """Return a schema that takes no field that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(entry) for name, entry in schema.items()}
    return found | ({"additionalProperties": False} if "properties" in schema else {})


def assert_has_shape(answer: object, name: str) -> None:
    schema = {**ref(name), "components": {"schemas": {name: strict(shape) for name, shape in SHAPES.items()}}}
    jsonschema.validate(answer, schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_schema_and_says_what_it_is_of(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SHAPES[name])
    assert SHAPES[name]["description"].endswith(".")


@pytest.mark.parametrize("state", State)
def test_the_status_has_its_shape(state: State) -> None:
    assert_has_shape(views.status(snapshot(table={"state": state})), "Status")


def test_the_status_of_a_bad_day_has_its_shape() -> None:
    moment = snapshot(
        source={"error": "gone", "retry_at": 5_001.0, "last_message_at": None, "state": "waiting"},
        table={"state": State.ERROR, "error": DecodeError("no number", hint="look"), "retry_at": 5_001.0},
        facts={"slot": None, "fresh_at": None},
        parked={("shop.items", "shop_eu"): ParkedView(bytes=7, since=NOW, first_lsn=0, is_full=True)},
        verdicts={("shop.items", "shop_eu"): Verdict(error="gone", tried_at=NOW)},
        staged=dataclasses.replace(STAGED, error="the store is away", staged_at=None),
    )
    assert_has_shape(views.status(moment, ErrorView(is_trusted=True)), "Status")
    assert_has_shape(upkeep.as_json(UPKEEP), "Files")


def test_a_shape_refuses_what_is_not_told() -> None:
    with pytest.raises(jsonschema.ValidationError):
        assert_has_shape(views.status(snapshot()) | {"more": 1}, "Status")


def test_what_is_answered_has_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = AdminWorld(tmp_path)

    def run(target: str, *, full: bool) -> Upkeep:
        if target == "shop.others":
            raise LakeError("away")
        return UPKEEP

    monkeypatch.setattr(world.app.lake.maintenance, "run", run)
    both = {"targets": ["shop.items", "shop.others"]}
    for path, body, status, shape in (
        ("/api/pause", {"sid": "eu"}, 202, "Done"),
        ("/api/pause", {"sid": "us"}, 404, "Error"),
        ("/api/maintain", both, 200, "Maintained"),
        ("/api/map/reload", {}, 409, "Error"),
    ):
        answer = world.ask(path, body=body)
        assert answer[0] == status
        assert_has_shape(answer[1], shape)
    for path in ("/livez", "/readyz"):
        assert_has_shape(world.ask(path, method="GET")[1], "Verdict")
    assert_has_shape(world.ask("/status", method="GET")[1], "Status")
    for path, shape in (("db", "Database"), ("url", "SourceUrl"), ("tbl", "TableEntry"), ("map", "MapEntry")):
        assert_has_shape(world.ask(f"/api/{path}/1", method="GET")[1], shape)
