"""What a person may tell a running kuvasz to do with its tables. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kuvasz.config import names
from kuvasz.events import Event
from kuvasz.state.tables import State, TableState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command; `kuvasz.sync.commands.Commands` has a method of its name."""

    name: str
    event: Event  #: that a person gave it
    fits: Callable[[TableState], bool]  #: whether it changes anything for a table
    why_not: str  #: as in "table shop.items is …"
    done: str  #: as in "…: shop.items of shop_eu"


VERBS = (
    Verb(
        name="pause",
        event=Event.PAUSE,
        fits=lambda state: not state.is_paused,
        why_not="paused already",
        done="paused",
    ),
    Verb(
        name="resume",
        event=Event.RESUME,
        fits=lambda state: state.is_paused,
        why_not="not paused",
        done="resumed",
    ),
    Verb(
        name="retry",
        event=Event.RETRY,
        fits=lambda state: state.error is not None and not state.is_paused,
        why_not="not in error",
        done="tried again",
    ),
    Verb(name="resync", event=Event.RESYNC, fits=lambda _: True, why_not="", done="to be copied again"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The tables that are meant: one of all sources, one of one source, or all of one source."""

    table: str | None  #: the target, with or without namespace, or the name at the source
    sid: str | None  #: the sid, or the name of the source; each ``*`` stands for any text
    database: str | None = None  #: only of this group, by the same rule

    @staticmethod
    def of(body: Mapping[str, Any]) -> Selection:
        """Return what a request's body asks for."""
        return Selection(table=body.get("table"), sid=body.get("sid"), database=body.get("database"))

    def has(self, state: TableState, sid: str | None, group: str = "") -> bool:
        """Whether a table of a source with this sid, of this group, is meant."""
        tenant = names.tenant_of(names.member_of(state.source))
        known = [one for one in (sid if tenant is None else tenant, state.database) if one]
        is_source = self.sid is None or any(names.is_like(self.sid, one) for one in known)
        is_source = is_source and (self.database is None or names.is_like(self.database, group))
        called = names.called(state.target, state.table) | names.called(state.target, state.mapped)
        return is_source and (self.table is None or self.table in called)

    def describe(self) -> str:
        """Return it in words."""
        parts = [] if self.table is None else [f"table {self.table!r}"]
        parts += [] if self.sid is None else [f"source {self.sid!r}"]
        parts += [] if self.database is None else [f"group {self.database!r}"]
        return " of ".join(parts)


def hint_for(states: Iterable[TableState]) -> str:
    """Return what to do where a command changes nothing for these tables."""
    is_early = any(state.state is State.NEW for state in states)
    return f"{'it has not been looked at yet: ' if is_early else ''}see `kuvasz status`"


__all__ = ["VERBS", "Selection", "Verb", "hint_for"]
