"""What a person may want of the tables of one source. What comes of it is seen in the tables' states.

A table is named by its target, and one of several that are one target by `SourceTableSpec.key`.
"""

from __future__ import annotations

import functools

from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.source_context import SourceContext


class Commands:
    """The commands for one source. Methods are called on the loop unless they say otherwise.

    Args:
        context: The context of the source.
        approvals: What a person agrees to.
    """

    def __init__(self, context: SourceContext, approvals: Approvals) -> None:
        self._states = context.shared.states
        self._source_tables = context.source_tables
        self._requests = context.requests
        self._approvals = approvals

    def pause(self, key: str) -> None:
        """Have a table stay where it is: what comes for it is parked, or kept by its source; the others go on."""
        spec = self._source_tables.spec(key)
        is_there = self._source_tables.position(spec) is not None
        hold = functools.partial(self._source_tables.hold, spec) if is_there else None
        self._states.pause(spec.identifier, self._source_tables.name(spec), hold=hold)

    def resume(self, key: str) -> None:
        """Let a paused table follow again, from where it is."""
        spec = self._source_tables.spec(key)
        self._states.unpause(spec.identifier, self._source_tables.name(spec))
        self._requests.add(key)

    def retry(self, key: str) -> None:
        """Try a table again that is in error, or waits for a person before it follows a change of its columns."""
        spec = self._source_tables.spec(key)
        self._requests.mended(key)
        self._approvals.give(key, self._source_tables.look(spec).error)
        self._requests.add(key)

    def resync(self, key: str) -> None:
        """Copy a table again beside the stream; its rows in the lake stay until the new ones replace them at once.

        Survives a restart. Now if the source streams, else with its next start; a paused table waits until it is
        resumed. Safe in any state, also when the table was dropped from the lake.
        """
        spec = self._source_tables.spec(key)
        self._source_tables.resync(spec, is_due=True)
        self._requests.add(key)

    def retry_later(self, key: str) -> None:
        """Try a table again by itself after a while, longer each time; called from any thread."""
        for spec in self._source_tables.known([key]):
            self._requests.send_later(spec)


__all__ = ["Commands"]
