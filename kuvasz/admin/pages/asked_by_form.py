"""What the API does when a page's form asks for it: the same, answered by a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from kuvasz.admin.api.form import FORM, form_of
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.pages.action_pages import done_page, refused_page
from kuvasz.admin.pages.frame import HEADERS

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Route
    from kuvasz.admin.door import Handler

#: Names of the routes that pages have done.
ACTIONS: Final = frozenset({"pause", "resume", "retry", "resync", "maintain", "verify"})


def by_form(route: Route, handler: Handler) -> Handler:
    """Return a handler that a form may ask, too; that of another route stays as it is."""
    if route.name not in ACTIONS:
        return handler

    async def answer(request: web.Request) -> web.StreamResponse:
        form = await form_of(request)
        if form is None:
            return await handler(request)
        request[FORM] = form
        try:
            done = await handler(request)
        except RequestRefused as refused:
            return _page(refused_page(route, form.fields, refused), refused.status)
        assert isinstance(done, web.Response)
        return _page(done_page(route, form.fields, done.text or ""), done.status)

    return answer


def _page(text: str, status: int) -> web.Response:
    return web.Response(text=text, content_type="text/html", headers=HEADERS, status=status)


__all__ = ["ACTIONS", "by_form"]
