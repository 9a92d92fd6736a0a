"""The parts that a running kuvasz tells over HTTP: status, metrics, stacks, and the last events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kuvasz.verbs import remote
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.model import Config


def report(config: Config) -> PartFiles:
    """Return what the running kuvasz says of itself.

    Raises:
        KuvaszError: Nobody answers, or not to us.
    """
    told = remote.report(config)
    notes = ("its status was not there within 5 s: see the stacks",) if told["status"] is None else ()
    return PartFiles(
        files={
            "status.json": told["status"],
            "events.txt": "".join(f"{json.dumps(event, ensure_ascii=False)}\n" for event in told["events"]),
            "threads.txt": "".join(_stacks("thread", told["threads"])),
            "tasks.txt": "".join(_stacks("task", told["tasks"])),
        },
        notes=notes,
    )


def metrics(config: Config) -> PartFiles:
    """Return the metrics.

    Raises:
        KuvaszError: Nobody answers, or not to us.
    """
    return PartFiles(files={"metrics.txt": remote.metrics(config)})


def _stacks(what: str, found: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for one in found:
        yield f"{what} {one[what]}\n"
        yield from (f"  {place}\n" for place in one["stack"])
        if one.get("waits_for"):
            yield f"  waits for a {one['waits_for']}\n"
        yield "\n"


__all__ = ["metrics", "report"]
