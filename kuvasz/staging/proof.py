"""Transactions that have to come on a connection, because the lake has them: else the source is another one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kuvasz import lsn
from kuvasz.errors import SourceReplaced, place_of, start_over
from kuvasz.model import Applied
from kuvasz.staging.stream_messages import StreamMessages


class Proof:
    """What one source has yet to prove.

    Args:
        source: Its name.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._expected: dict[int, Applied] = {}
        self.received_lsn = 0  #: up to which the source has been heard out on this connection

    @property
    def unproven_lsn(self) -> int | None:
        """LSN of the first transaction that is still to come; None: none is."""
        return min(self._expected, default=None)

    def expect(self, applied: Iterable[Applied]) -> None:
        """Have transactions come on a connection that begins, in place of those before."""
        self.received_lsn = 0
        self._expected = {one.commit_lsn: one for one in applied}

    def meet(self, messages: StreamMessages, received_lsn: int) -> None:
        """Take note of what came.

        Args:
            messages: What came.
            received_lsn: Up to where the source has been heard out with it.

        Raises:
            SourceReplaced: A transaction did not come, and what lies behind it has.
        """
        self.received_lsn = max(self.received_lsn, received_lsn)
        if not self._expected:
            return
        begun = [messages.begun(message) for message in messages.begins.tolist()]
        came = {at: Applied(at, xid, us) for at, us, xid in begun}
        reached = max(received_lsn, max(came, default=0))
        for one in [one for one in self._expected.values() if one.commit_lsn <= reached]:
            found = came.get(one.commit_lsn)
            if found is None and one.commit_lsn == reached:
                continue  # a keepalive may name the place where it begins
            if found is None or one.xid not in {0, found.xid} or one.commit_us not in {0, found.commit_us}:
                raise SourceReplaced(
                    f"{place_of(self._source)}: the lake has a transaction at {lsn.render(one.commit_lsn)}"
                    " that is not in its WAL: an older backup was restored, or a standby took over that was late",
                    hint=start_over(self._source),
                )
            self._expected = {at: other for at, other in self._expected.items() if at != one.commit_lsn}


__all__ = ["Proof"]
