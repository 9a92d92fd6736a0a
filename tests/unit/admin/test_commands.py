from __future__ import annotations

import dataclasses

import pytest

from kuvasz.admin.commands import VERBS, Selection, hint_for
from kuvasz.errors import TableError
from kuvasz.state.tables import State, TableState

ITEMS = TableState(target="shop.items", source="shop_eu", table="public.items")


@pytest.mark.parametrize(
    ("table", "sid", "is_meant"),
    [
        ("items", None, True),
        ("public.items", None, True),
        ("shop.items", "eu", True),
        ("items", "shop_eu", True),
        (None, "eu", True),
        (None, "us", False),
        (None, "e*", True),
        (None, "*_eu", True),
        (None, "", False),
        ("items", "us", False),
        ("others", "eu", False),
    ],
)
def test_a_table_is_meant_by_what_people_call_it(table: str | None, sid: str | None, is_meant: bool) -> None:
    body = {"table": table, "sid": sid}
    assert Selection.of(body).has(ITEMS, "eu") is is_meant


@pytest.mark.parametrize(
    ("table", "sid", "is_meant"),
    [(None, "acme", True), ("items", "acme", True), ("tenant_acme.items", None, True), (None, "shop", True),
     ("items", None, True), (None, "beta", False), (None, "16401", False), (None, "label", False)],
)  # fmt: skip
def test_a_tenants_table_is_meant_by_the_tenant(table: str | None, sid: str | None, is_meant: bool) -> None:
    state = TableState(target="shop.items", source="shop/16401@acme", table="tenant_acme.items")
    assert Selection(table=table, sid=sid).has(state, "label") is is_meant


def test_a_table_is_meant_by_the_group_of_its_source() -> None:
    for pattern, is_meant in (("shop", True), ("s*", True), ("crm", False)):
        assert Selection(table=None, sid="eu", database=pattern).has(ITEMS, "eu", "shop") is is_meant
    assert not Selection(table=None, sid="").has(ITEMS, None), "nobody is called nothing"


def test_a_selection_describes_itself() -> None:
    assert Selection(table="items", sid="eu").describe() == "table 'items' of source 'eu'"
    assert Selection(table=None, sid="eu").describe() == "source 'eu'"


@pytest.mark.parametrize(
    ("state", "fitting"),
    [
        (State.STREAMING, {"pause", "resync"}),
        (State.ERROR, {"pause", "resync", "retry"}),
        (State.PAUSED, {"resume", "resync"}),
    ],
)
def test_a_command_fits_where_it_changes_something(state: State, fitting: set[str]) -> None:
    error = TableError("wrong") if state is State.ERROR else None
    table = TableState(target="t", source="s", table="t", state=state, error=error, is_paused=state is State.PAUSED)
    assert {verb.name for verb in VERBS if verb.fits(table)} == fitting


def test_who_comes_early_is_told_so() -> None:
    assert hint_for([ITEMS]) == "it has not been looked at yet: see `kuvasz status`"
    assert hint_for([dataclasses.replace(ITEMS, state=State.STREAMING)]) == "see `kuvasz status`"
