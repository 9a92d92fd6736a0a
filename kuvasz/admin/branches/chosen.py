"""Which tables of a map a publication is about, and which moment of theirs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.config import names
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.config.sources import Source

_MAIN: Final = "main"


def chosen(sources: Iterable[Source], table: str | None, branch: str | None) -> list[str]:
    """Return the targets that are meant: those that are written to another branch than main.

    One that is named is meant whatever the map says: its branch may be what an earlier map said.

    Args:
        sources: All of the map.
        table: Only these, as their sources or the lake call them; each ``*`` stands for any text.
        branch: Only those that the map has written to this one.

    Raises:
        ConfigError: There is none.
    """
    found = dict.fromkeys(
        spec.identifier
        for source in sources
        for spec in source.tables
        if (table is None or any(names.is_like(table, one) for one in names.called(spec.identifier, spec.table)))
        and (table is not None or spec.branch != _MAIN)
        and branch in {None, spec.branch}
    )
    if not found and table is not None and branch is None:
        raise ConfigError(f"the map has no table {table!r}", hint="name it as the source or the lake calls it")
    if not found:
        which = f"on the branch {branch!r}" if branch else "on another branch than main"
        raise ConfigError(
            f"no such table of the map is written {which}",
            hint="`branch` of a table, or `lake.branch`, says where it is written",
        )
    return list(found)


def tag_of(cut: str | None) -> str | None:
    """Return the tag that a cut has given to its tables; None: no cut is meant.

    Args:
        cut: The name, as `kuvasz cut --name` takes it, or the tag's.
    """
    return None if cut is None else names.CUT_PREFIX + cut.removeprefix(names.CUT_PREFIX)


__all__ = ["chosen", "tag_of"]
