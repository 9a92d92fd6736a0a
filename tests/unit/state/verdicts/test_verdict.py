"""A verdict and its JSON."""

from __future__ import annotations

import pytest

from kuvasz.state.verdicts.verdict import Verdict

KNOWN = Verdict(at=5.5, lsn="0/16B3748", rows=7, differences=3, left=1, error="gone", tried_at=9.0)


def test_a_verdict_is_found_again_from_its_json() -> None:
    assert Verdict.of_json(KNOWN.as_json()) == KNOWN


@pytest.mark.parametrize("found", [{}, {"at": "soon"}, {**KNOWN.as_json(), "rows": None}])
def test_json_of_another_is_refused(found: dict) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Verdict.of_json(found)
