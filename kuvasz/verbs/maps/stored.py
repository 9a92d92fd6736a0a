"""``kuvasz map``: the text of the map into where it is kept, out of there, and what it was before.

What is put there is checked as a whole first, and has to mean what its file means: paths that begin at the file would
begin elsewhere. A running kuvasz goes by it at once, and what that refuses is taken back.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kuvasz.config import load
from kuvasz.config.written import relative_paths
from kuvasz.config.written.map_file import MapFile
from kuvasz.config.written.map_store import NOTHING, digest_of
from kuvasz.errors import ConfigError, MapUnwritten
from kuvasz.verbs.sources.map_rewrite import MapRewrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.config.load import Loaded
    from kuvasz.config.written.map_store import MapStore, MapVersion


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapImport:
    """What became of a text."""

    place: str
    sources: int
    is_new: bool  #: there was no map before
    is_other: bool  #: than the one that was there
    is_running: bool  #: a kuvasz goes by it already


def taken_in(store: MapStore, file: Path, overrides: Mapping[str, str]) -> MapImport:
    """Put the text of a file where the map is kept.

    Args:
        store: Where that is.
        file: The file.
        overrides: Flags.

    Raises:
        ConfigError: It is faulty, or would mean something else there; or somebody was quicker.
        MapUnwritten: It cannot be written.
        Refused: The running kuvasz cannot go by it: the map is as it was.
    """
    before = load.load(file, None, overrides)
    text = MapFile(file).text(before.digest)
    after = load.of_store(store, text, None, overrides)
    _refuse_others(before, after)
    is_new = store.is_empty()
    is_running = False
    is_other = is_new or digest_of(store.raw()) != after.digest
    if is_new:
        store.exchange(text, NOTHING)
    elif is_other:
        is_running = _replaced(store, text, overrides)
    return MapImport(
        place=store.place, sources=sum(len(group.urls) for group in after.config.databases),
        is_new=is_new, is_other=is_other, is_running=is_running,
    )  # fmt: skip


def _replaced(store: MapStore, text: str, overrides: Mapping[str, str]) -> bool:
    """Put a text in the place of another; return whether a kuvasz goes by it."""
    try:
        known = load.load(store, None, overrides)
    except ConfigError:  # what is there is faulty by now, as where a variable is gone: nobody goes by it
        store.exchange(text, digest_of(store.raw()))
        return False
    return MapRewrite(known, text).take_over()


def _refuse_others(before: Loaded, after: Loaded) -> None:
    """Refuse a text that means something else in another place."""
    found = relative_paths.differing(before.config, after.config)
    if not found and before.config != after.config:
        found = ["databases"]
    if found:
        raise ConfigError(
            f"{', '.join(found)}: a relative path of the file would begin in another folder there",
            hint="write the whole path in the file",
        )


def write_out(text: bytes, file: Path) -> None:
    """Write a map's text into a new file, for its owner alone: it may have passwords.

    Raises:
        MapUnwritten: There is one, or it cannot be written.
    """
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:  # noqa: PTH123
            stream.write(text)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise MapUnwritten(f"cannot write {file}: {why}", hint="name a file that is not there yet") from error


def render(versions: Sequence[MapVersion]) -> str:
    """Return versions in words, a line each."""
    return "\n".join(
        f"{one.number or '':>8}  {one.at:%Y-%m-%d %H:%M:%S} UTC  {one.size:>9,} bytes  {one.digest[:12]}  {one.by}"
        for one in versions
    )


def told(outcome: MapImport) -> str:
    """Return what became of a text in words."""
    if not outcome.is_other:
        return f"{outcome.place} has this map already"
    where = (
        "the running kuvasz goes by it" if outcome.is_running
        else "no kuvasz answers here: it counts from the next start on"
    )  # fmt: skip
    return f"{outcome.place} has {'its first' if outcome.is_new else 'this'} map: {outcome.sources} sources; {where}"


__all__ = ["MapImport", "render", "taken_in", "told", "write_out"]
