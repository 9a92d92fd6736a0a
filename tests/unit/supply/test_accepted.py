from __future__ import annotations

import datetime
import re

import pytest

from supply import accepted
from supply.accepted import Accepted

TODAY = datetime.date(2026, 1, 31)
ENTRY = '[[accepted]]\nhole = "CVE-1"\npackage = "g:a"\nreason = "why"\nexpires = 2026-12-31\n'


def test_an_entry_has_a_reason_and_a_last_day() -> None:
    entry = Accepted(hole="CVE-1", package="g:a", reason="why", expires=datetime.date(2026, 12, 31))
    assert accepted.read(ENTRY, TODAY) == (entry,)
    assert accepted.read("# nothing\n", TODAY) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace('reason = "why"\n', ""), "it has to have expires, hole, package, reason, and nothing else"),
        (ENTRY + "more = 1\n", "it has to have expires, hole, package, reason, and nothing else"),
        (ENTRY.replace('"why"', '" "'), "hole, package and reason may not be empty"),
        (ENTRY.replace("2026-12-31", '"2026-12-31"'), "expires is no day: 2026-12-31"),
        (ENTRY.replace("2026-12-31", "2026-12-31T00:00:00Z"), "expires is no day: 2026-12-31 00:00:00+00:00"),
        (ENTRY.replace("2026-12-31", "2027-02-02"), "expires is more than a year away: 2027-02-02"),
    ],
)
def test_an_entry_that_lacks_something_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'accepted entry 1 (g:a, CVE-1): {message}')}$"):
        accepted.read(text, TODAY)


@pytest.mark.parametrize(
    ("text", "message"), [("accepted = ", "no TOML: "), ("[ignored]\n", "nothing but [[accepted]] is known: ignored")]
)
def test_another_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        accepted.read(text, TODAY)
