"""What a route of the HTTP API is: how it is asked for, and what it answers. Pure.

Whatever is said of a route comes of this: how it is registered, what its body may have, the OpenAPI document and the
pages.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.config.model import Role
from kuvasz.config.problem import listed
from kuvasz.model import TableType

#: A JSON Schema (draft 2020-12), in which ``{"$ref": "#/components/schemas/…"}`` is one of `kuvasz.admin.api.shapes`.
Schema: TypeAlias = dict[str, Any]

JSON: Final = "application/json"


class FieldKind(enum.Enum):
    """What a field of a body may hold: its words, its JSON Schema, and the check."""

    def __init__(self, words: str, schema: Schema, fits: Callable[[object], bool]) -> None:
        self.words = words
        self.schema = schema
        self.fits = fits

    TEXT = (
        "a text",
        {"type": ["string", "null"], "minLength": 1},
        lambda value: value is None or (isinstance(value, str) and value != ""),
    )
    SWITCH = "true or false", {"type": "boolean"}, lambda value: isinstance(value, bool)
    LINE = "a text, or null", {"type": ["string", "null"]}, lambda value: value is None or isinstance(value, str)
    NUMBER = (
        "a whole number from 1 on",
        {"type": "integer", "minimum": 1},
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and value % 1 == 0,
    )
    TABLE_TYPE = (
        listed(kind.value for kind in TableType),
        {"type": "string", "enum": [kind.value for kind in TableType]},
        lambda value: isinstance(value, str) and value in {kind.value for kind in TableType},
    )
    SHOWN = (
        "whatever was shown, which is passed over",
        {"description": "What was shown."},
        lambda _: True,
    )
    TEXTS = (
        "a list of texts",
        {"type": "array", "items": {"type": "string"}},
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BodyField:
    """A field of a request's body."""

    name: str
    kind: FieldKind
    about: str
    example: object
    is_required: bool = False

    @property
    def schema(self) -> Schema:
        """Its JSON Schema; null is nothing, which one that is required cannot be."""
        is_text = self.kind is FieldKind.TEXT
        return self.kind.schema | ({"type": "string"} if self.is_required and is_text else {})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a request brings: an object with these fields and no others."""

    fields: tuple[BodyField, ...]
    one_of: tuple[str, ...] = ()  #: at least one of these fields is there
    most: int | None = None  #: bytes of it, where it may be longer than others

    def read(self, given: object) -> Mapping[str, Any]:
        """Return the fields that are there; a text that is null is not.

        Raises:
            RequestRefused: A field is missing, wrong or unknown.
        """
        if not isinstance(given, dict):
            raise RequestRefused(400, "the body is no JSON object", self._hint())
        known = {field.name: field for field in self.fields}
        if unknown := [name for name in given if name not in known]:
            raise RequestRefused(400, f"the body has the unknown field {unknown[0]!r}", self._hint())
        for name, value in given.items():
            if not known[name].kind.fits(value):
                raise RequestRefused(400, f"{name} has to be {known[name].kind.words}", self._hint())
        passed = {field.name for field in self.fields if field.kind is FieldKind.SHOWN}
        found = {name: value for name, value in given.items() if value is not None and name not in passed}
        for field in self.fields:
            if field.is_required and field.name not in found:
                raise RequestRefused(400, f"{field.name} is missing: it has to be {field.kind.words}", self._hint())
        if self.one_of and not found.keys() & set(self.one_of):
            raise RequestRefused(400, f"{' and '.join(self.one_of)} are missing", self._hint())
        return found

    def schema(self) -> Schema:
        """Return its JSON Schema."""
        found: Schema = {
            "type": "object",
            "properties": {
                field.name: field.schema | {"description": field.about, "examples": [field.example]}
                for field in self.fields
            },
            "additionalProperties": False,
        }
        if required := [field.name for field in self.fields if field.is_required]:
            found["required"] = required
        if self.one_of:
            found["anyOf"] = [{"required": [name], "properties": {name: {"type": "string"}}} for name in self.one_of]
        return found

    def _hint(self) -> str:
        shown = [field for field in self.fields if field.kind is not FieldKind.SHOWN]
        return f"it may have {', '.join(f'{field.name} ({field.kind.words})' for field in shown)}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A part of a route's url that the client chooses: of its path, or of its query."""

    name: str
    about: str
    schema: Schema
    example: str
    is_in_path: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RouteAnswer:
    """What a route answers with one status."""

    about: str
    schema: Schema
    media: str = JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: whole numbers; name -> what it says


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path."""

    name: str  #: `kuvasz.admin.api.answers.Answers` has a handler of this name
    method: str
    path: str  #: with parameters as in ``/api/db/{id}``
    summary: str
    about: str
    answers: Mapping[int, RouteAnswer]
    role: Role | None = None  #: of the token it needs; None: it needs none
    shows_more: bool = False  #: to who brings a token, though it needs none
    shows_secrets: bool = False  #: so that its requests are told, too, though they change nothing
    writes_map: bool = False  #: so it is refused while the map is read-only
    body: Body | None = None
    parameters: tuple[Parameter, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it may change something, so that its requests are told."""
        return self.method != "GET"

    @property
    def title(self) -> str:
        """Method and path, as in "POST /api/pause"."""
        return f"{self.method} {self.path}"

    @property
    def example_path(self) -> str:
        """The path with an example of each parameter in it."""
        found = self.path
        for one in self.parameters:
            found = found.replace(f"{{{one.name}}}", one.example) if one.is_in_path else found
        return found


#: What says in an answer why a request was refused.
ERROR: Final[Schema] = {"$ref": "#/components/schemas/Error"}

#: What every route answers that needs a token.
TOKEN_ANSWERS: Final = {
    401: RouteAnswer(about="The token is missing or wrong.", schema=ERROR),
    403: RouteAnswer(about="The role of the token is too low.", schema=ERROR),
}


def writing_answers(conflict: str) -> dict[int, RouteAnswer]:
    """Return what every route answers, beside these, that writes the map's file; it says why it would conflict."""
    failed = "The file cannot be written, or the lake does not answer: nothing is changed."
    return {
        405: RouteAnswer(about="The map is read-only: `map.writable` is false.", schema=ERROR),
        409: RouteAnswer(about=conflict, schema=ERROR),
        500: RouteAnswer(about=failed, schema=ERROR),
    }


__all__ = [
    "ERROR",
    "JSON",
    "TOKEN_ANSWERS",
    "Body",
    "BodyField",
    "FieldKind",
    "Parameter",
    "Route",
    "RouteAnswer",
    "Schema",
    "writing_answers",
]
