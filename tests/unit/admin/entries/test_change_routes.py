from __future__ import annotations

import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.api.route import Route
from kuvasz.admin.entries.change_routes import CHANGE_ROUTES
from kuvasz.admin.entries.entry_shapes import ENTRY_SHAPES
from kuvasz.config.model import Role

WRITING = [route for route in CHANGE_ROUTES if route.writes_map]


@pytest.mark.parametrize("route", WRITING, ids=lambda route: route.name)
def test_what_writes_the_map_is_for_admins_and_says_so(route: Route) -> None:
    assert route.role is Role.ADMIN
    assert {200, 400, 401, 403, 405, 409, 500} <= route.answers.keys()
    assert (404 in route.answers) is ("{id}" in route.path)


@pytest.mark.parametrize(
    "route", [route for route in WRITING if route.body is not None], ids=lambda route: route.name
)
def test_an_entry_may_come_back_as_it_was_shown(route: Route) -> None:
    assert route.body is not None
    shape = str(route.answers[200].schema["$ref"]).rpartition("/")[2]
    fields = {field.name: field.example for field in route.body.fields}
    assert fields.keys() == ENTRY_SHAPES[shape]["properties"].keys()
    found = route.body.read(
        fields | {"id": 7, "up": True, "status": None, "error": {}} if shape == "SourceUrl" else fields
    )
    assert not found.keys() & {"id", "db_name", "up", "status", "error"}, "what was shown changes nothing"
    with pytest.raises(RequestRefused, match="unknown field 'product_name'"):
        route.body.read({**fields, "product_name": "x"})
