"""``kuvasz cleanup``: takes from the sources what kuvasz made there, the slot and the publication."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, KuvaszError, mend_of, place_of
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.verbs import text
from kuvasz.verbs.check import THREADS

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source

#: The outcome where there is nothing to be dropped.
NOT_THERE = "was not there"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of one thing at one source."""

    source: str
    what: str  #: slot or publication
    name: str
    outcome: str  #: dropped, "was not there", or failed
    error: str | None = None
    hint: str | None = None


def run(config: Config, *, is_sure: bool) -> list[Step]:
    """Drop slot and publication of every source of the map, all sources side by side.

    Args:
        config: The map.
        is_sure: Without it nothing is done.

    Raises:
        ConfigError: Nobody is sure, or what is there is another deployment's.
    """
    refuse_group(config)
    sources = config_sources.resolve(config)
    if not is_sure:
        listed = ", ".join(f"{source.object_name} at {source.url.redacted()}" for source in sources)
        raise ConfigError(
            f"cleanup drops slot and publication of every source: {listed}",
            hint="afterwards every table has to be copied again; add --yes if that is meant",
        )
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="cleanup") as pool:
        return [step for steps in pool.map(clean, sources) for step in steps]


def refuse_group(config: Config) -> None:
    """Refuse to drop what a group of a log only hears.

    Raises:
        ConfigError: The map is such a group's.
    """
    if config.cluster.group is not None:
        raise ConfigError(
            f"cluster.group: slots and publications are not those of group {config.cluster.group}",
            hint=f"`kuvasz cluster retire {config.cluster.group}` ends it; the sources stay as they are",
        )


def exit_code(steps: Sequence[Step]) -> int:
    """Return 1 if anything is left that should have gone."""
    return int(any(step.error is not None for step in steps))


def clean(source: Source) -> list[Step]:
    """Drop slot and publication of one source."""
    name = source.object_name
    try:
        with conninfo.asked(source.url.get(), place_of(source.name)) as connection:
            # The slot first: it keeps WAL, and a publication that goes before it would break its stream.
            with slots.slot_session(source, connection) as session:
                slot = _drop(source.name, "slot", name, lambda: slots.drop(session, name))
            if slot.error is not None:
                return [slot]
            first = _drop(source.name, "publication", name, lambda: publication.drop(connection, name))
            more = inserts.object_name(name)
            if not publication.exists(connection, more):
                return [slot, first]
            return [slot, first, _drop(source.name, "publication", more, lambda: publication.drop(connection, more))]
    except KuvaszError as error:
        return [_left(source.name, "slot", name, error)]


def _drop(source: str, what: str, name: str, drop: Callable[[], bool]) -> Step:
    try:
        outcome = "dropped" if drop() else NOT_THERE
    except KuvaszError as error:
        return _left(source, what, name, error)
    return Step(source=source, what=what, name=name, outcome=outcome)


def _left(source: str, what: str, name: str, error: KuvaszError) -> Step:
    in_use = "stop kuvasz, or who else reads the slot, and run this again"
    hint = in_use if "is active for PID" in error.message else mend_of(error)
    return Step(source=source, what=what, name=name, outcome="left", error=error.message, hint=hint or None)


def left(config: Config) -> list[str]:
    """Return what cleanup never touches."""
    targets = sorted(target.identifier for target in config_sources.targets(config))
    shown = ", ".join(targets[:20]) + (f" and {len(targets) - 20} more" if len(targets) > 20 else "")
    about = config.lake.about
    return [
        f"the lake's tables, with the positions in them: {shown}",
        *([] if about is None else [f"the tables about the lake: those of the namespace {about}"]),
        f"the state folder: {config.pipeline.state_folder}",
    ]


def render(steps: Sequence[Step], remaining: Sequence[str]) -> str:
    """Return what was done, and what is left."""
    lines = []
    for step in steps:
        lines.append(f"{step.source}: {step.what} {step.name}: {step.outcome}")
        if step.error is not None:
            lines += [f"  {step.error}", *([f"  hint: {step.hint}"] if step.hint else [])]
    return text.lines([*lines, "left as they are:", *(f"  {one}" for one in remaining)])


def as_json(steps: Sequence[Step], remaining: Sequence[str]) -> dict[str, Any]:
    """Return the same ready for JSON."""
    return {"steps": [dataclasses.asdict(step) for step in steps], "left": list(remaining)}
