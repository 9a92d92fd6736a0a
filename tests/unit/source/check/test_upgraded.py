from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.source.check import upgraded
from kuvasz.source.check.upgraded import UpgradedServer

SERVER = UpgradedServer(
    began_xid=784, is_counting=True, others=(), younger=frozenset({1, 2}), written={1: 0, 2: 0},
)  # fmt: skip


@pytest.mark.parametrize("rest_xid", [784, (3 << 32) + 784])
def test_a_server_that_began_where_the_one_before_was_at_rest_is_that_one(rest_xid: int) -> None:
    assert upgraded.why_not(rest_xid, SERVER) == ""


@pytest.mark.parametrize(
    ("rest_xid", "facts", "why"),
    [
        (0, {}, "the cluster before was never seen at rest"),
        (783, {}, "it began with transaction 784, and the cluster before was at rest at 783"),
        (785, {}, "it began with transaction 784, and the cluster before was at rest at 785"),
        (784, {"is_counting": False}, "its statistics were reset, or are not kept: nobody knows what was written"),
        (
            784, {"others": ("app", "dba")},
            "others are connected to its database, and may have written: app, dba",
        ),
        (784, {"younger": frozenset({1})}, "tables of it are older than its beginning"),
        (784, {"written": {1: 0, 2: 7}}, "1 of its tables were written since"),
    ],
)  # fmt: skip
def test_what_may_be_missing_is_told(rest_xid: int, facts: dict[str, Any], why: str) -> None:
    assert upgraded.why_not(rest_xid, dataclasses.replace(SERVER, **facts)) == why
