"""The parts of the archive: gathered side by side, each within its time, and none keeps the others from coming."""

from __future__ import annotations

import dataclasses
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from kuvasz.errors import KuvaszError

_Item = TypeVar("_Item", bound=Hashable)
_Result = TypeVar("_Result")

#: Items of one part that are worked on at a time: most of them wait for somebody.
_AT_A_TIME = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """What a part came to."""

    files: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: name -> a text, or what JSON can say
    notes: tuple[str, ...] = ()  #: what of it is missing
    is_under_way: bool = False  #: something of it takes longer than it may, and goes on


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part."""

    name: str
    what: str  #: for the manifest
    limit_s: float
    gather: Callable[[], PartFiles]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartOutcome:
    """A part that was gathered, or was not."""

    part: Part
    gathered: PartFiles = PartFiles()
    why_not: str = ""
    is_under_way: bool = False  #: it takes longer than it may, and its thread is there still


def outcomes(parts: Iterable[Part]) -> list[PartOutcome]:
    """Gather parts side by side, each for as long as it may take."""
    begin = time.monotonic()
    under_way = [(part, _begun(part)) for part in parts]
    found = []
    for part, (thread, ended) in under_way:
        thread.join(max(0.0, begin + part.limit_s - time.monotonic()))
        late = PartOutcome(part=part, why_not=f"it was not there within {part.limit_s:g} s", is_under_way=True)
        found.append(ended[0] if ended else late)
    return found


def in_time(
    items: Iterable[_Item], work: Callable[[_Item], _Result], limit_s: float
) -> tuple[dict[_Item, _Result], list[_Item]]:
    """Return what work makes of items, and which are not ready when the time is over: those are left to themselves.

    Args:
        items: All of them.
        work: Done side by side; raises nothing.
        limit_s: For all together.
    """
    wanted = list(items)
    waiting, done = iter(wanted), dict[_Item, _Result]()
    turn, end = threading.Lock(), time.monotonic() + limit_s

    def run() -> None:
        while time.monotonic() < end:
            with turn:
                item = next(waiting, None)
            if item is None:
                return
            done[item] = work(item)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(_AT_A_TIME, len(wanted)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    found = dict(done)  # those that are late may still come
    return found, [item for item in wanted if item not in found]


def why(error: Exception) -> str:
    """Return why something could not be had, and nothing that others wrote into an error that is not ours."""
    if isinstance(error, KuvaszError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join([type(error).__name__, *(f"at {one.filename}:{one.lineno}" for one in last)])


def _begun(part: Part) -> tuple[threading.Thread, list[PartOutcome]]:
    """Return the thread that gathers a part, and where its outcome will be."""
    ended: list[PartOutcome] = []

    def run() -> None:
        try:
            ended.append(PartOutcome(part=part, gathered=part.gather()))
        except Exception as error:  # noqa: BLE001 (whatever a part meets, the others come)
            ended.append(PartOutcome(part=part, why_not=why(error)))

    thread = threading.Thread(target=run, name=f"support {part.name}", daemon=True)
    thread.start()
    return thread, ended


__all__ = ["Part", "PartFiles", "PartOutcome", "in_time", "outcomes", "why"]
