"""Every verb is a route, and every route that is for a verb has one; or there is a reason."""

from __future__ import annotations

from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.config.model import Role
from tests.support import command_list

#: Verb -> the route that does the same.
_NAMED_OTHERWISE = {
    "discover": "map_list",
    "source list": "source_list",
    "source show": "source_get",
    "source add": "source_add",
    "source drop": "source_drop",
    "source erase": "erasure_ask",
    "source drift": "drift",
    "map import": "map_import",
    "map export": "map_export",
    "map versions": "map_versions",
    "source pause": "pause",
    "source resume": "resume",
}

#: Verbs without a route, and why.
_COMMANDS_ALONE = {
    "cleanup": "it is for a kuvasz that is stopped for good",
    "demo": "it has servers of its own",
    "rejects": "it shows rows as well, and compares as verify does",
    "cluster nodes": "it asks the coordinator, also where no kuvasz runs",
    "cluster groups": "it asks the coordinator, also where no kuvasz runs",
    "cluster retire": "it tells the coordinator, also where no kuvasz runs",
    "cluster forget": "it tells the coordinator, and looks that no such process runs",
    "cluster promote": "it tells the coordinator, also where no kuvasz runs",
    "cluster drain": "it tells the coordinator, also where no kuvasz runs",
}

#: Routes that are no verb, but for those of the map's entries.
_ROUTES_ALONE = {"livez", "readyz", "metrics", "openapi", "docs", "fleet_page", "table_page", "action_page"}


def test_every_verb_is_a_route_and_the_reverse() -> None:
    verbs, routes = set(command_list.verbs()), {route.name for route in ROUTES}
    assert verbs - routes == _NAMED_OTHERWISE.keys() | _COMMANDS_ALONE.keys()
    assert set(_NAMED_OTHERWISE.values()) <= routes
    entries = {name for name in routes if name.partition("_")[0] in {"db", "url", "tbl", "map", "source", "erasure"}}
    assert routes - verbs - entries - set(_NAMED_OTHERWISE.values()) == _ROUTES_ALONE


def test_what_asks_servers_is_for_operators() -> None:
    assert {route.name for route in LOOK_ROUTES if route.role is Role.OPERATOR} == {
        "check", "plan", "drift", "wait"
    }  # fmt: skip
    assert all(route.role is not None for route in LOOK_ROUTES)
    assert {route.name: route.role for route in LOOK_ROUTES if route.changes} == {
        "init": Role.ADMIN, "trace": Role.ADMIN
    }  # fmt: skip


def test_who_is_shown_rows_or_passwords_is_an_admin_and_told_of() -> None:
    assert {route.name for route in ROUTES if route.shows_secrets} == {"map_export"}
    for route in ROUTES:
        if route.shows_secrets or route.name == "trace":
            assert route.role is Role.ADMIN
            assert route.shows_secrets or route.changes
