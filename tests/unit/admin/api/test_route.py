from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.api.route import Body, BodyField, FieldKind

BODY = Body(
    fields=(
        BodyField(name="name", kind=FieldKind.TEXT, about="A name.", example="a"),
        BodyField(name="other", kind=FieldKind.TEXT, about="Another.", example="a"),
        BodyField(name="full", kind=FieldKind.SWITCH, about="All.", example=True),
        BodyField(name="all", kind=FieldKind.TEXTS, about="Some.", example=["a"], is_required=True),
    ),
    one_of=("name", "other"),
)


def test_fields_that_are_there_are_read_and_a_text_that_is_null_is_not() -> None:
    assert BODY.read({"name": "x", "other": None, "all": []}) == {"name": "x", "all": []}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "the body is no JSON object"),
        ([], "the body is no JSON object"),
        ({"name": "x"}, "all is missing: it has to be a list of texts"),
        ({"all": []}, "name and other are missing"),
        ({"name": "", "all": []}, "name has to be a text"),
        ({"name": "x", "all": "a"}, "all has to be a list of texts"),
        ({"name": "x", "all": [1]}, "all has to be a list of texts"),
        ({"name": "x", "all": None}, "all has to be a list of texts"),
        ({"name": "x", "all": [], "full": None}, "full has to be true or false"),
        ({"name": "x", "all": [], "full": 1}, "full has to be true or false"),
        ({"name": "x", "all": [], "Full": True}, "the body has the unknown field 'Full'"),
    ],
)
def test_what_is_refused_is_no_instance_of_the_schema_either(given: Any, message: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        BODY.read(given)
    assert (refused.value.status, refused.value.message) == (400, message)
    assert refused.value.hint == (
        "it may have name (a text), other (a text), full (true or false), all (a list of texts)"
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given, BODY.schema())


def test_what_is_read_is_an_instance_of_the_schema() -> None:
    jsonschema.validate({"name": "x", "other": None, "all": ["a"], "full": False}, BODY.schema())
