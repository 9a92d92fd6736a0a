"""The routes of the HTTP API as docs/http.md lists them, from the one table of them.

`python -m tests.support.route_list` writes them into the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from kuvasz.admin.api import docs_page
from kuvasz.admin.api.route import Route
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.shapes import SHAPES
from tests.support import generated

PAGE = generated.DOCS / "http.md"


def text() -> str:
    """Return all routes, and the shapes of what they answer."""
    return generated.part("routes", "tests.support.route_list", _lines())


def _lines() -> Iterator[str]:
    yield from generated.table(
        ("Route", "What", "Token"),
        ((f"`{route.title}`", route.summary, docs_page.token_of(route)) for route in ROUTES),
    )
    for route in ROUTES:
        yield ""
        yield from _section(route)
    for name, shape in SHAPES.items():
        yield from ("", f"## {name}", "", shape["description"], "")
        yield from generated.table(
            ("Field", "Value", "Meaning"),
            (
                (f"`{field}`", docs_page.called(inner, _link, _code), inner.get("description", ""))
                for field, inner in shape["properties"].items()
            ),
        )


def _section(route: Route) -> Iterator[str]:
    yield from (f"## {route.title}", "", f"{route.summary}. {route.about}")
    if route.parameters:
        yield ""
        yield from generated.table(
            ("Parameter", "Meaning", "Example"),
            ((f"`{one.name}`", one.about, f"`{one.example}`") for one in route.parameters),
        )
    if route.body is not None:
        yield ""
        yield from generated.table(
            ("Field", "Value", "Meaning"),
            ((f"`{field.name}`", field.kind.words, field.about) for field in route.body.fields),
        )
    yield from ("", "```sh", docs_page.example(route), "```", "")
    yield from generated.table(
        ("Status", "Meaning", "Shape"),
        (
            (str(status), answer.about, docs_page.called(answer.schema, _link, _code))
            for status, answer in route.answers.items()
        ),
    )


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    generated.write(PAGE.name, "routes", text())
