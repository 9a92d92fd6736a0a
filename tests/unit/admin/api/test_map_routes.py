from __future__ import annotations

from kuvasz.admin.api.map_routes import MAP_ROUTES, MOST_MAP
from kuvasz.admin.door import MOST_BODY
from kuvasz.config.model import Role


def test_what_gives_passwords_or_writes_the_map_is_for_admins() -> None:
    assert {route.name for route in MAP_ROUTES if route.role is not Role.ADMIN} == {"map_versions"}
    assert {route.name for route in MAP_ROUTES if route.shows_secrets} == {"map_export"}
    assert {route.name for route in MAP_ROUTES if route.writes_map} == {"map_import"}


def test_a_map_alone_may_be_long() -> None:
    assert {route.body.most for route in MAP_ROUTES if route.body is not None} == {MOST_MAP}
    assert MOST_MAP > MOST_BODY
