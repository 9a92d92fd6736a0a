from __future__ import annotations

from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.verbs.served.looks import LOOKS


def test_every_route_of_a_verb_that_looks_is_answered() -> None:
    assert LOOKS.keys() == {route.name for route in LOOK_ROUTES}
