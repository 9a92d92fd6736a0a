"""The verb `maintain`: have the running kuvasz look after tables now, or do it here if none answers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.lake.maintenance import run_once
from kuvasz.ports import Target, Upkeep
from kuvasz.shown import figures
from kuvasz.sync.rules.targets import target_of
from kuvasz.verbs import remote, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.model import Config


def run(config: Config, table: str | None, *, full: bool) -> list[dict[str, Any]]:
    """Look after the tables of the map.

    Args:
        config: The whole configuration.
        table: The only one, as the source or the lake calls it.
        full: Leave no dead row and no delete file.

    Returns:
        Per table what it is like now, with `error` where it could not be done.

    Raises:
        ConfigError: The map has no such table.
        LakeError: No kuvasz runs, and the lake cannot be reached.
    """
    targets = _targets(config, table)
    try:
        return remote.maintain(config, [target.name for target in targets], full=full)
    except (remote.NotRunning, remote.ForeignServer, ConfigError):
        # Nobody runs, or it cannot be asked: Iceberg fences two writers.
        outcomes = run_once.maintain(config, targets, full=full)
    return [
        dataclasses.asdict(outcome) if isinstance(outcome, Upkeep)
        else {"target": outcome[0], "error": str(outcome[1])}
        for outcome in outcomes
    ]  # fmt: skip


def _targets(config: Config, table: str | None) -> Sequence[Target]:
    found = {}
    for source in config_sources.resolve(config):
        for spec in source.tables:
            if table is None or table in names.called(spec.identifier, spec.table):
                found[spec.identifier] = target_of(spec)
    if not found:
        raise ConfigError(f"the map has no table {table!r}", hint="name it as the source or the lake calls it")
    return list(found.values())


def render(outcomes: Sequence[dict[str, Any]]) -> str:
    """Return the tables for a terminal."""
    head = ("table", "files", "size", "dead rows", "delete files", "snapshots", "rewritten")
    rows = [
        (o["target"], o["error"], "", "", "", "", "")
        if o.get("files") is None
        else (o["target"], str(o["files"]), figures.size(o["bytes"]), f"{o['dead_rows']} of {o['rows']}",
              str(o["delete_files"]), "" if o["snapshots"] is None else str(o["snapshots"]),
              figures.size(o["rewritten_bytes"]))
        for o in outcomes
    ]  # fmt: skip
    return text.table(head, rows)


def exit_code(outcomes: Sequence[dict[str, Any]]) -> int:
    """Return 1 if a table could not be maintained."""
    return int(any(outcome["error"] for outcome in outcomes))
