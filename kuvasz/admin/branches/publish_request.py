"""What is asked for with `POST /api/publish`, and what is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.branches.chosen import chosen, tag_of
from kuvasz.errors import ConfigError, KuvaszError, LakeError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.ports import Published
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.app import App
    from kuvasz.config.secrets import Redactor

_log = EventLog(__name__)

#: Of a table in one of these, what its branch has is not all of the source's moment.
_UNFIT: Final = frozenset({State.NEW, State.COPYING, State.ERROR})


class PublishRequests:
    """Requests for main to show branches. On the loop.

    Args:
        app: The application that writes the branches.
        redact: Takes secrets out.
    """

    def __init__(self, app: App, redact: Redactor) -> None:
        self._app = app
        self._redact = redact

    async def answer(self, request: web.Request) -> web.Response:
        """Publish tables one after another; the answer comes when each is done or refused."""
        body: Mapping[str, Any] = request[BODY]
        try:
            targets = chosen((sync.source for sync in self._app.sources), body.get("table"), body.get("branch"))
        except ConfigError as error:
            raise RequestRefused(404, error.message, error.hint) from error
        is_trial, is_forced, tag = body.get("dry_run", False), body.get("force", False), tag_of(body.get("cut"))
        told = []
        for target in targets:
            outcome = await asyncio.to_thread(self._publish, target, tag, is_trial=is_trial, is_forced=is_forced)
            if isinstance(outcome, Published) and outcome.before != outcome.after and not is_trial:
                _log.tell(
                    Event.PUBLISHED, table=target, branch=outcome.branch, snapshot=outcome.after,
                    snapshot_before=outcome.before, by=person(request),
                )  # fmt: skip
            told.append(as_json(target, outcome))
        return web.json_response(self._redact.clean({"tables": told}))

    def _publish(self, target: str, tag: str | None, *, is_trial: bool, is_forced: bool) -> Published | KuvaszError:
        try:
            if not is_forced and tag is None:
                self._refuse_unfit(target)
            return self._app.lake.branches.publish(target, tag, is_trial=is_trial)
        except KuvaszError as error:
            return error

    def _refuse_unfit(self, target: str) -> None:
        """Refuse a table of which a source's part is missing, or is not followed.

        Raises:
            LakeError: There is such a source.
        """
        found = [
            f"{state.source} is {state.state.value}"
            for state in self._app.states.snapshot()
            if state.target == target and state.state in _UNFIT
        ]
        if found:
            message = f"{place_of(table=target)}: not all of its sources are in it: {', '.join(sorted(found))}"
            raise LakeError(message, hint="wait for them, or publish it all the same: `kuvasz publish --force`")


def as_json(target: str, outcome: Published | KuvaszError) -> dict[str, Any]:
    """Return what became of one table, ready for JSON."""
    if isinstance(outcome, Published):
        return {"target": target, "branch": outcome.branch, "before": outcome.before, "after": outcome.after}
    return {"target": target, "error": outcome.message, "hint": outcome.hint}


__all__ = ["PublishRequests", "as_json"]
