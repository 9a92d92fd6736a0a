from __future__ import annotations

from kuvasz.admin.entries.entry_routes import ENTRY_ROUTES, TOTAL


def test_every_kind_of_entry_is_listed_with_its_total_and_shown_one_by_one() -> None:
    looking = {route.path: route for route in ENTRY_ROUTES if route.method == "GET"}
    assert looking.keys() == {
        f"/api/{kind}{which}" for kind in ("db", "url", "tbl", "map") for which in ("", "/{id}")
    }
    for path, route in looking.items():
        assert (TOTAL in route.answers[200].headers) is ("{id}" not in path)
        assert (404 in route.answers) is ("{id}" in path)
