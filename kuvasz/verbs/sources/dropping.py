"""``kuvasz source drop``: sources leave the map, and with them their slots if that is meant."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final

from kuvasz.admin.sources import mapped_url, source_edits
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.verbs import cleanup, remote
from kuvasz.verbs.check import THREADS
from kuvasz.verbs.sources.map_rewrite import MapRewrite

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kuvasz.admin.sources.mapped_url import MappedUrl, SourceSelection
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source
    from kuvasz.verbs.cleanup import Step

#: For sources that run to end: they get 20 s for what is in hand.
_END_S: Final = 90.0

_PAUSE_S: Final = 0.3

#: At what the running kuvasz has left, or is about to drop; and seconds between them.
_ATTEMPTS: Final = 4
_AGAIN_S: Final = 2.0

_SHOWN: Final = 20


def run(
    loaded: Loaded, choice: SourceSelection, *, drops_slot: bool | None, is_sure: bool, is_alone: bool = False
) -> dict[str, Any]:
    """Take sources out of the map; return what became of them, ready for JSON.

    Args:
        loaded: The map.
        choice: Which.
        drops_slot: Whether slot and publication go, too; None: as `map.drop_removed` says.
        is_sure: Without it nothing is done.
        is_alone: No kuvasz runs, whoever answers: none is to be told.

    Raises:
        ConfigError: None is meant, nobody is sure, or the map would be faulty: nothing is changed.
        Refused: The running kuvasz cannot go by the map then: the file is as it was.
    """
    config = loaded.config
    chosen = _chosen(config, choice)
    is_dropping = config.map.drop_removed if drops_slot is None else drops_slot
    if is_dropping:
        cleanup.refuse_group(config)
    if not is_sure:
        raise _unsure(chosen, is_dropping=is_dropping)
    rewrite = MapRewrite(loaded, source_edits.dropped(chosen))
    leaving = {one.name for one in chosen}
    sources = [source for source in config_sources.resolve(config) if source.name in leaving]
    if is_alone:
        rewrite.write()
    is_running = not is_alone and rewrite.take_over(drop_removed=is_dropping)
    if is_running:
        _wait_gone(config, leaving)
    steps = _clean(sources, is_running=is_running) if is_dropping else []
    return {
        "sources": sorted(leaving),
        "slots": [one.slot for one in chosen],
        "is_running": is_running,
        "drops_slot": is_dropping,
        "tables": sorted({spec.identifier for source in sources for spec in source.tables}),
        "steps": [dataclasses.asdict(step) for step in steps],
    }


def _chosen(config: Config, choice: SourceSelection) -> list[MappedUrl]:
    if choice.sid is None and choice.database is None:
        raise ConfigError("kuvasz source drop: which source?", hint="name it: --sid eu, or a group: --database shop")
    chosen = [one for one in mapped_url.all_of(config) if choice.has_whole(one)]
    if not chosen:
        raise ConfigError(
            f"the map has no {choice.describe()}",
            hint="`kuvasz source list` lists them; a tenant of `schemas` leaves when its schema is dropped or"
            " renamed, or when the expression takes it in no more",
        )
    gone = {one.path for one in chosen}
    for group in {one.group.database for one in chosen}:
        if not config.map.writable and all(
            one.path in gone for one in mapped_url.all_of(config) if one.group.database == group
        ):
            raise ConfigError(
                f"the group {group!r} would be without a source",
                hint="take the whole group out of the map by hand, and `kuvasz reload`; or `map: {writable: true}`"
                " lets a group be without sources",
            )
    return chosen


def _unsure(chosen: Sequence[MappedUrl], *, is_dropping: bool) -> ConfigError:
    listed = ", ".join(f"{one.name} ({one.url.url.redacted()})" for one in chosen[:_SHOWN])
    more = f" and {len(chosen) - _SHOWN} more" if len(chosen) > _SHOWN else ""
    slots = "drops their slots and publications" if is_dropping else "leaves their slots, which hold WAL"
    return ConfigError(
        f"source drop takes {len(chosen)} out of the map: {listed}{more}; it {slots}, and leaves their rows",
        hint="add --yes if that is meant; --drop-slot and --keep-slot say what becomes of the slots",
    )


def _wait_gone(config: Config, leaving: Collection[str]) -> None:
    """Wait until sources have ended, as long as they usually take."""
    give_up = time.monotonic() + _END_S
    while time.monotonic() < give_up:
        try:
            there = {one["source"] for one in remote.status(config)["sources"]}
        except remote.NotRunning:
            return
        if there.isdisjoint(leaving):
            return
        time.sleep(_PAUSE_S)


def _clean(sources: Sequence[Source], *, is_running: bool) -> list[Step]:
    """Drop what sources have of ours; return what became of that, but for what the running kuvasz has dropped.

    It drops nothing where it saw by itself that the file is another one, and cannot where the server is away.
    """
    steps: dict[str, list[Step]] = {}
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="cleanup") as pool:
        for attempt in range(_ATTEMPTS if is_running else 1):
            if attempt:
                time.sleep(_AGAIN_S)  # it may be at it
            due = [one for one in sources if one.name not in steps or cleanup.exit_code(steps[one.name])]
            steps |= {one.name: done for one, done in zip(due, pool.map(cleanup.clean, due), strict=True)}
    found = [step for done in steps.values() for step in done]
    return [step for step in found if not (is_running and step.outcome == cleanup.NOT_THERE)]


def exit_code(answer: dict[str, Any]) -> int:
    """Return 1 if a slot or publication is left that should have gone."""
    return int(any(step["error"] is not None for step in answer["steps"]))


def render(answer: dict[str, Any]) -> str:
    """Return the answer in words."""
    where = "" if answer["is_running"] else "; no kuvasz answers here: it counts from the next start on"
    lines = [f"dropped from the map: {', '.join(answer['sources'])}{where}"]
    for step in answer["steps"]:
        lines.append(f"  {step['source']}: {step['what']} {step['name']}: {step['outcome']}")
        lines += [f"    {step[what]}" for what in ("error", "hint") if step[what]]
    if not answer["drops_slot"]:
        lines += [
            f"  its slot holds WAL until it is dropped: SELECT pg_drop_replication_slot('{name}');"
            f" DROP PUBLICATION {name};"
            for name in answer["slots"]
        ]
    lines.append(f"their rows stay in {', '.join(answer['tables']) or 'the lake'}")
    return "\n".join(lines)


__all__ = ["exit_code", "render", "run"]
