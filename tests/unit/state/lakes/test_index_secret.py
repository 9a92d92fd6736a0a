"""All processes of a cluster go by the secret of the first one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.errors import StateError
from kuvasz.state.lakes.index_secret import SharedIndexSecret


def secret_in(kept: dict[str, Any]) -> SharedIndexSecret:
    """Return the secret as documents in a dict have it."""

    def change(name: str, to: Callable[[Any], Any]) -> None:
        kept[name] = to(kept.get(name))

    return SharedIndexSecret(cast("Any", SimpleNamespace(change=change, place="the coordinator")))


def test_the_first_one_decides() -> None:
    kept: dict[str, Any] = {}
    assert secret_in(kept).agree(b"one") == b"one"
    assert secret_in(kept).agree(b"two") == b"one"


def test_what_cannot_be_read_is_told() -> None:
    with pytest.raises(StateError, match="the secret of indexes cannot be read"):
        secret_in({"index": {"secret": "no hex"}}).agree(b"one")
