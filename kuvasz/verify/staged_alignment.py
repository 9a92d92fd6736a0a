"""How far the lake is with a source that is staged: what was confirmed to the source says nothing of it.

The log's index says it, of the group whose lake is compared: everything before an LSN is in its tables. That follows
the source while a process applies, also where nothing comes but how far the source is. While none does, what the lake
lacks is in objects of the log, behind which nobody looks here: it has to be applied first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kuvasz import lsn
from kuvasz.errors import SourceError
from kuvasz.sync.context.alignment import Alignment, LakeStanding

if TYPE_CHECKING:
    from kuvasz.config.sources import Source
    from kuvasz.state.staged.ports import LogIndex


class StagedAlignment(Alignment):
    """What is known of one source of a log.

    Args:
        source: From the map.
        index: The log's index, as the lake's group has it.
    """

    def __init__(self, source: Source, index: LogIndex) -> None:
        super().__init__(source)
        self._index = index

    @override
    def _look(self, connection: Any, place: str) -> LakeStanding:
        # Of a source that is of another past by now a group says nothing, until it has looked at it.
        found = self._index.positions().get(self._source.name)
        return LakeStanding(0 if found is None else found.applied, self._index.is_applied())

    @override
    def _left(self, at: int, place: str) -> int:
        """Refuse what nobody applies.

        Raises:
            SourceError: Nobody does.
        """
        raise SourceError(
            f"{place}: no process applies what is staged, so the lake lacks what came since {lsn.render(at)}",
            hint="start kuvasz, and verify beside it",
        )

    @override
    def _stuck(self, at: int, point: int, place: str) -> SourceError:
        return SourceError(
            f"{place}: the lake has what is staged up to {lsn.render(at)} and got no further in a while; needed is"
            f" {lsn.render(point)}",
            hint="`kuvasz status` says which table holds it, or that nobody reads the source: mend that, and verify"
            " again",
        )


__all__ = ["StagedAlignment"]
