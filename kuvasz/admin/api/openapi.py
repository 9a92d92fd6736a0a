"""The OpenAPI document of the routes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kuvasz import __version__
from kuvasz.admin.api.route import JSON, Parameter, Route, RouteAnswer, Schema
from kuvasz.admin.api.shapes import SHAPES

#: The scheme under which the document names the token.
_TOKEN: Final = "token"  # noqa: S105 (its name)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1.1) of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "kuvasz",
            "version": __version__,
            "summary": "A running kuvasz seen and steered from outside",
            "description": "What only looks needs no token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": SHAPES,
            "securitySchemes": {
                _TOKEN: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `server.tokens` in the map, of the role that is named or a higher one"
                    " (viewer, operator, admin); or the one in server.json of the state folder, which is made at each"
                    " start and may do everything.",
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.about,
        "security": _security(route),
        "responses": {str(status): _response(answer) for status, answer in route.answers.items()},
    }
    if route.parameters:
        found["parameters"] = [_parameter(one) for one in route.parameters]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _content(JSON, route.body.schema())}
    return found


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Return the ways to ask for a route: without a token, with one, or either."""
    if route.role is not None:
        return [{_TOKEN: [route.role.value]}]
    return [{}, {_TOKEN: []}] if route.shows_more else []


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name, "in": "path" if parameter.is_in_path else "query", "required": parameter.is_in_path,
        "description": parameter.about, "schema": parameter.schema | {"examples": [parameter.example]},
    }  # fmt: skip


def _response(answer: RouteAnswer) -> dict[str, Any]:
    headers = {
        name: {"description": about, "required": True, "schema": {"type": "integer"}}
        for name, about in answer.headers.items()
    }
    found = {"description": answer.about, "content": _content(answer.media, answer.schema)}
    return found | ({"headers": headers} if headers else {})


def _content(media: str, schema: Schema) -> dict[str, Any]:
    return {media: {"schema": schema}}


__all__ = ["document"]
