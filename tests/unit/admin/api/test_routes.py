from __future__ import annotations

import re

from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.commands import VERBS
from kuvasz.admin.looks.look_routes import LOOK_ROUTES


def test_no_two_routes_are_alike() -> None:
    assert (
        len({route.name for route in ROUTES}) == len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    )


def test_each_verb_for_tables_has_a_route() -> None:
    paths = {route.name: route.path for route in ROUTES}
    assert {verb.name: paths.get(verb.name) for verb in VERBS} == {verb.name: f"/api/{verb.name}" for verb in VERBS}


#: They change nothing, and say more of the process, or of where the sources are, than a stranger is to know.
TELLING = {
    "support",
    "map_versions",
    "map_export",
    *(route.name for route in LOOK_ROUTES),
    *(f"{path}_{which}" for path in ("db", "url", "tbl", "map", "source", "erasure") for which in ("list", "get")),
}


def test_a_path_has_the_parameters_that_are_told() -> None:
    for route in ROUTES:
        told = {one.name for one in route.parameters if one.is_in_path}
        assert set(re.findall(r"\{(\w+)\}", route.path)) == told, route.title


def test_whatever_changes_something_needs_a_token_and_says_what_else_may_come() -> None:
    for route in ROUTES:
        assert (route.role is not None) is (route.method != "GET" or route.name in TELLING), route.title
        refusals = {401, 403} & route.answers.keys()
        assert refusals == ({401, 403} if route.role else set()), route.title


def test_texts_are_sentences_but_for_titles() -> None:
    for route in ROUTES:
        assert re.fullmatch(r"[A-Z].*[^.]", route.summary), route.title
        for text in (route.about, *(answer.about for answer in route.answers.values())):
            assert re.fullmatch(r"[A-Z].*\.", text), text
