"""Which tables a source's collapses take in; looks need a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.model import SourcePosition
from kuvasz.sync.watch.member_watch import MemberWatch

EVENTS = "shop.events"


class UnloadedLake:
    """Nothing of it is loaded; its catalog has positions of two sources."""

    def __init__(self) -> None:
        at = SourcePosition(lsn=100)
        self.catalog = {"eu/1": at, "eu/2": at, "us/1": at, "eu": at}
        self.asked = 0

    def positions(self, _: str) -> dict[str, SourcePosition]:
        return {}

    def recorded(self, _: str) -> dict[str, SourcePosition]:
        self.asked += 1
        return dict(self.catalog)

    def forget(self, _: str, name: str, *, is_gone: bool) -> None:
        assert is_gone
        del self.catalog[name]


@pytest.fixture
def lake() -> UnloadedLake:
    return UnloadedLake()


def watch(lake: UnloadedLake) -> MemberWatch:
    """Return that of a source whose collapse takes nothing in."""
    collapse = SimpleNamespace(identifier=EVENTS, is_collapse=True)
    source = SimpleNamespace(name="eu", tables=(collapse,))
    nothing: Any = SimpleNamespace(unbind=lambda *_: None)
    shared = SimpleNamespace(lake=lake, states=nothing, progress=nothing, routes=nothing)
    now = SimpleNamespace(source=SimpleNamespace(name="eu", tables=()))
    context: Any = SimpleNamespace(source=source, shared=shared, source_tables=now, settle=lambda _: None)
    return MemberWatch(context)


def test_members_are_let_go_where_nobody_loads_their_target(lake: UnloadedLake) -> None:
    members = watch(lake)
    members.forget_gone()
    assert set(lake.catalog) == {"us/1", "eu"}
    members.forget_gone()
    assert lake.asked == 1, "the catalog is asked once, not at every look"
