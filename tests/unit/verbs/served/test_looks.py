from __future__ import annotations

from typing import Any

import pytest

from kuvasz.admin.looks.look_routes import LOOK_ROUTES
from kuvasz.verbs.lake import notes, trace
from kuvasz.verbs.served.looks import LOOKS


def test_every_route_of_a_verb_that_looks_is_answered() -> None:
    assert LOOKS.keys() - {"erase"} == {route.name for route in LOOK_ROUTES}  # what would go is asked by its route


@pytest.mark.parametrize(
    ("name", "verb", "query", "wanted"),
    [
        ("notes", notes, {"sid": ["eu"]}, {"table": None, "sid": "eu"}),
        (
            "trace", trace, {"table": ["items"], "key": ["1", "b=2"], "at_source": [True]},
            {"table": "items", "key": ["1", "b=2"], "sid": None, "at_source": True},
        ),
    ],
)  # fmt: skip
def test_what_is_asked_is_handed_to_the_verb(
    monkeypatch: pytest.MonkeyPatch, name: str, verb: Any, query: dict[str, Any], wanted: dict[str, Any]
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(verb, "tables", lambda _, **given: asked.append(given) or [])
    loaded: Any = type("Loaded", (), {"config": None})
    assert LOOKS[name](loaded, query) in ([], {"tables": []})
    assert asked == [wanted]
