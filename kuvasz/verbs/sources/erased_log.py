"""What a cluster's log has when rows go for good: all that is staged is in the lake, and nobody knows other objects.

No process of the cluster reads meanwhile (`kuvasz.verbs.sources.erasing.ERASES`). A group of the log keeps none of
those from it, for they read for others as well: what they stage meanwhile is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.errors import ConfigError, LakeError
from kuvasz.lake.files import store_access
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.state.store import log_index

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.state.staged.ports import LogIndex


def refuse_staged(config: Config) -> None:
    """Refuse to erase where the staged log has anything.

    Raises:
        ConfigError: Something is staged.
    """
    index = _index(config)
    if index is not None and index.objects():
        raise ConfigError(
            f"cluster.log: {index.place} has staged changes, and what is staged of one source lies among others'",
            hint="let kuvasz run until the lake has all of it, stop it, and begin again",
        )


def forget(config: Config) -> dict[str, int]:
    """Remove objects of a process that wrote them and died before the index knew of them.

    Returns:
        How many `strays` there were, and how many `objects` are there that are none.

    Raises:
        LakeError: They cannot be listed or removed.
    """
    index = _index(config)
    if index is None:
        return {"strays": 0, "objects": 0}
    strays = [] if index.group is not None else _strays(config, index)
    return {"strays": len(strays), "objects": len(index.objects())}


def _strays(config: Config, index: LogIndex) -> list[str]:
    word = index.word()
    store = ObjectFolder(config.cluster.log_location or "", store_access.of_lake(config.lake))
    try:
        found = [name for name in store.names() if word is not None and name.startswith(f"{word}-")]
    except OSError as error:
        raise _failed(f"{store.place} cannot be listed: {error}") from error
    strays = set(found) - set(index.objects())  # as they are behind that: what is staged meanwhile is none
    if left := strays.difference(store.remove(strays)):
        raise _failed(f"{store.place}/{min(left)} cannot be removed")
    return sorted(strays)


def _failed(what: str) -> LakeError:
    hint = "let kuvasz list and remove what is there, and begin again: it goes on where it was"
    return LakeError(f"cluster.log: {what}", hint=hint)


def _index(config: Config) -> LogIndex | None:
    return None if config.cluster.log is None else log_index(config)


__all__ = ["forget", "refuse_staged"]
