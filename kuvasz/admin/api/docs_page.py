"""The page that shows the API to a person: made of the routes here, with nothing from outside and no script. Pure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kuvasz import __version__
from kuvasz.admin.api.route import Body, Route, Schema
from kuvasz.admin.api.shapes import SHAPES
from kuvasz.admin.pages.frame import headers_of

_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { padding: .6rem .8rem; border: 1px solid #8886; border-radius: 4px; overflow-x: auto }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #8886 }
h2 { margin-top: 2.5rem; border-top: 1px solid #8886; padding-top: 1rem }
"""

HEADERS: Final = headers_of(_STYLE)


def page(routes: Iterable[Route]) -> str:
    """Return the page of routes, as HTML."""
    known = list(routes)
    overview = ([_link(route), _text(route.summary), token_of(route)] for route in known)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>The HTTP API of kuvasz</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1>The HTTP API of kuvasz {html.escape(__version__)}</h1>",
            '<p>The same as OpenAPI 3.1: <a href="/api/openapi.json">/api/openapi.json</a>.</p>',
            *_table(("Route", "What", "Token"), overview),
            *(line for route in known for line in _section(route)),
            "<h2>Shapes</h2>",
            *(line for name, shape in SHAPES.items() for line in _shape(name, shape)),
            "</body>\n</html>",
        ]
    )  # fmt: skip


def _section(route: Route) -> Iterator[str]:
    yield f'<h2 id="{route.name}"><code>{html.escape(route.title)}</code></h2>'
    yield f"<p>{_text(route.summary)}. {_text(route.about)}</p>"
    if route.parameters:
        rows = [[_code(one.name), _text(one.about), _code(one.example)] for one in route.parameters]
        yield from _table(("Parameter", "Meaning", "Example"), rows)
    if route.body is not None:
        rows = [[_code(field.name), field.kind.words, _text(field.about)] for field in route.body.fields]
        yield from _table(("Field", "Value", "Meaning"), rows)
    yield f"<pre>{html.escape(example(route))}</pre>"
    answers = [[str(status), _text(answer.about), _named(answer.schema)] for status, answer in route.answers.items()]
    yield from _table(("Status", "Meaning", "Shape"), answers)


def example(route: Route) -> str:
    """Return a command that asks for a route."""
    token = ' -H "Authorization: Bearer $TOKEN"' if route.role is not None else ""
    body = "" if route.body is None else f" -d '{json.dumps(_example(route.body))}'"
    method = "" if route.method == "GET" or (route.method == "POST" and body) else f" -X {route.method}"
    return f"curl{method}{token}{body} http://127.0.0.1:8000{route.example_path}"


def _example(body: Body) -> dict[str, object]:
    return {field.name: field.example for field in body.fields if field.name != "by"}


def _shape(name: str, shape: Schema) -> Iterator[str]:
    yield f'<h3 id="{name}">{name}</h3>\n<p>{_text(shape.get("description", ""))}</p>'
    rows = [[_code(field), _named(inner), _text(inner.get("description", ""))]
            for field, inner in shape["properties"].items()]  # fmt: skip
    yield from _table(("Field", "Value", "Meaning"), rows)


def called(schema: Schema, link: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Return what a value is called: a shape, a type, or several.

    Args:
        schema: What the value looks like.
        link: Makes a link of a shape's name.
        code: Makes code of a text.
    """
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(called(one, link, code) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    if "const" in schema:
        return code(schema["const"])
    if schema["type"] == "array":
        return f"list: {called(schema['items'], link, code)}"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(kinds)


def _named(schema: Schema) -> str:
    return called(schema, lambda name: f'<a href="#{name}">{name}</a>', _code)


def token_of(route: Route) -> str:
    """Say whose token a route needs."""
    return "any shows more" if route.shows_more else "" if route.role is None else route.role.value


def _link(route: Route) -> str:
    return f'<a href="#{route.name}">{_code(route.title)}</a>'


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _text(text: str) -> str:
    """Return a text with its code between backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"<table>\n<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</table>"


__all__ = ["HEADERS", "called", "example", "page", "token_of"]
