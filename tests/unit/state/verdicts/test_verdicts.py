"""The verdicts of a running kuvasz."""

from __future__ import annotations

from kuvasz.state.memory import MemoryVerdicts
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.state.verdicts.verdicts import Verdicts

ITEMS, OTHERS = ("shop.items", "eu"), ("shop.others", "eu")


def test_a_verdict_counts_and_is_kept() -> None:
    stored = MemoryVerdicts()
    verdicts = Verdicts(stored)
    shown = verdicts.all()
    verdicts.put(ITEMS, Verdict(at=1.0))
    assert (shown, verdicts.all(), stored.all()) == ({}, {ITEMS: Verdict(at=1.0)}, {ITEMS: Verdict(at=1.0)})


def test_what_earlier_processes_found_says_less_than_what_this_one_did() -> None:
    stored = MemoryVerdicts()
    stored.put({ITEMS: Verdict(at=1.0), OTHERS: Verdict(at=1.0)})
    verdicts = Verdicts(stored)
    assert verdicts.all() == {}
    verdicts.put(ITEMS, Verdict(at=2.0))
    verdicts.read()
    assert verdicts.all() == {ITEMS: Verdict(at=2.0), OTHERS: Verdict(at=1.0)}


def test_tables_that_are_gone_are_forgotten() -> None:
    stored = MemoryVerdicts()
    verdicts = Verdicts(stored)
    for key in (ITEMS, OTHERS):
        verdicts.put(key, Verdict(at=1.0))
    verdicts.keep({OTHERS, ("shop.more", "eu")})
    assert verdicts.all() == stored.all() == {OTHERS: Verdict(at=1.0)}
