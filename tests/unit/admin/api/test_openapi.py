from __future__ import annotations

import json

import pytest

from kuvasz import __version__
from kuvasz.admin.api import openapi
from kuvasz.admin.api.routes import ROUTES

DOCUMENT = json.loads(json.dumps(openapi.document(ROUTES)))


def test_the_document_is_valid() -> None:
    # Here alone: it takes a second to load, which each worker would wait for.
    import openapi_spec_validator

    openapi_spec_validator.OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["info"]["version"] == __version__


def test_who_tries_it_would_say_if_it_were_not() -> None:
    import openapi_spec_validator
    from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

    with pytest.raises(OpenAPIValidationError):
        openapi_spec_validator.OpenAPIV31SpecValidator({**DOCUMENT, "info": {}}).validate()


def test_the_document_has_every_route_with_all_that_it_may_answer() -> None:
    found = {
        (path, method.upper()): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert found.keys() == {(route.path, route.method) for route in ROUTES}
    for route in ROUTES:
        operation = found[route.path, route.method]
        assert operation["responses"].keys() == {str(status) for status in route.answers}
        assert ("requestBody" in operation) is (route.body is not None)


def test_the_document_says_where_the_token_is_needed() -> None:
    pause, status = (DOCUMENT["paths"][path] for path in ("/api/pause", "/status"))
    assert pause["post"]["security"] == [{"token": ["operator"]}]
    assert DOCUMENT["paths"]["/api/map/reload"]["post"]["security"] == [{"token": ["admin"]}]
    assert status["get"]["security"] == [{}, {"token": []}]
    assert DOCUMENT["paths"]["/metrics"]["get"]["security"] == []


def test_every_shape_is_used_and_there() -> None:
    text = json.dumps(DOCUMENT)
    for name in DOCUMENT["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text
