"""Paths of a map that begin where the map is: one that is in no folder must not have any. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz.config import problem
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.config.model import Config


def refuse(config: Config, place: str) -> None:
    """Refuse a map that is in no folder and has relative paths: each verb would begin them elsewhere.

    Raises:
        ConfigError: It has some.
    """
    found = differing(config.anchored(Path("/a")), config.anchored(Path("/b")))
    if found:
        raise ConfigError(
            f"{place}: {', '.join(found)}: a relative path would begin in another folder wherever it is read",
            hint="a map in a server is in no folder: write whole paths, for pipeline.state too, which has a default",
        )


def differing(one: Config, other: Config) -> list[str]:
    """Return the options, not those of sources, that two maps have otherwise."""
    shown = [config.model_dump(mode="json", exclude={"databases"}) for config in (one, other)]
    return list(_differing(shown[0], shown[1], ()))


def _differing(one: Any, other: Any, path: problem.Path) -> Iterator[str]:  # noqa: ANN401 (plain values)
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one | other:
            yield from _differing(one.get(key), other.get(key), (*path, key))
    elif one != other:
        yield problem.render_path(path)


__all__ = ["differing", "refuse"]
