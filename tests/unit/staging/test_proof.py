"""A source proves that it has what the lake has."""

from __future__ import annotations

import pytest

from kuvasz.errors import SourceReplaced
from kuvasz.model import Applied
from kuvasz.staging.proof import Proof
from kuvasz.staging.stream_messages import StreamMessages
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit


def stream(*lsns: int) -> StreamMessages:
    return StreamMessages(*pgoutput.gulp([part for at in lsns for part in (begin(at, xid=7, us=5), commit(at))]))


def test_what_came_is_proved() -> None:
    proof = Proof("eu")
    proof.expect([Applied(200)])
    proof.meet(stream(), 200)
    assert (proof.unproven_lsn, proof.received_lsn) == (200, 200), "a keepalive may name where it begins"
    proof.expect([Applied(200), Applied(100, 7, 5)])
    proof.meet(stream(100), 108)
    assert proof.unproven_lsn == 200
    proof.meet(stream(200), 208)
    assert proof.unproven_lsn is None


@pytest.mark.parametrize(("expected", "came"), [(Applied(100), (200,)), (Applied(100, 8), (100,)),
                                                 (Applied(100, 7, 6), (100,))])  # fmt: skip
def test_another_one_is_found_out(expected: Applied, came: tuple[int, ...]) -> None:
    proof = Proof("eu")
    proof.expect([expected])
    with pytest.raises(SourceReplaced, match="that is not in its WAL"):
        proof.meet(stream(*came), came[-1] + 8)
    assert proof.unproven_lsn == 100
