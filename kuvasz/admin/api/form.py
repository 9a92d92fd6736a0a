"""What a page asks for without a script: a form, that brings the token with the fields of the body.

A page of another origin may send one as well, and has no token to send with it: nothing of who asks comes by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from kuvasz.admin.api.route import Body, FieldKind

if TYPE_CHECKING:
    from multidict import MultiMapping

_KIND: Final = "application/x-www-form-urlencoded"

#: The field of the token.
TOKEN: Final = "token"  # noqa: S105 (its name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """The fields of a form."""

    fields: Mapping[str, Sequence[str]]

    @property
    def token(self) -> str:
        """What it says who asks by."""
        return next(iter(self.fields.get(TOKEN, ())), "")

    def body(self, body: Body) -> dict[str, Any]:
        """Return the fields as JSON would have them."""
        kinds = {field.name: field.kind for field in body.fields}
        return {
            name: list(values) if kinds.get(name) is FieldKind.TEXTS else values[0]
            for name, values in self.fields.items()
            if name != TOKEN
        }


FORM: Final[web.RequestKey[RequestForm]] = web.RequestKey("form", RequestForm)


async def form_of(request: web.Request) -> RequestForm | None:
    """Return what a form brings; None for any other request.

    One with a header for its token is none: `curl -d` and others call every body a form.
    """
    if request.content_type != _KIND or "Authorization" in request.headers:
        return None
    try:
        given = await request.post()
    except (ValueError, LookupError):  # bytes that are no text, or in an encoding that nobody knows
        return RequestForm(fields={})
    return RequestForm(fields=_texts(given))


def _texts(given: MultiMapping[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in given.items():
        if isinstance(value, str):
            found.setdefault(name, []).append(value)
    return found


__all__ = ["FORM", "TOKEN", "RequestForm", "form_of"]
