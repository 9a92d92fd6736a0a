"""What is known of a mini-transaction when it is durable, as a trace of it needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias


@dataclasses.dataclass(slots=True)
class Times:
    """When the steps of a mini-transaction began, monotonic seconds; noted where somebody traces."""

    came: float  #: the first of its changes
    begun: float  #: it was gathered
    written: float = 0.0  #: its files were there
    committing: float = 0.0
    durable: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MiniTransaction:
    """One that is durable. It has names, numbers and positions, and no value of any row."""

    worker: int
    times: Times
    bytes: int
    rows: int
    through: Mapping[str, int]  #: source -> the LSN before which this worker has everything
    snapshots: Mapping[str, int | None]  #: target that changed -> Iceberg's id, if there is a new one
    failed: tuple[str, ...] = ()  #: targets


#: Told of each mini-transaction in a worker's thread; it must neither fail nor wait.
OnDurable: TypeAlias = Callable[[MiniTransaction], None]

__all__ = ["MiniTransaction", "OnDurable", "Times"]
