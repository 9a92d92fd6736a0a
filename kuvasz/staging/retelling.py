"""A source's stream told once more from an earlier place on, as the source itself would tell it. Pure.

A server describes a relation before its first row on a connection. Whoever hears the stream from the middle of that
connection has to be told so, too: the description that is in force is put where the first row needs it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kuvasz.model import UInt32s
from kuvasz.staging.stream_messages import Description, StreamMessages, is_same


class Retelling:
    """What one hearer was told.

    Args:
        from_lsn: Transactions that ended at or before it are left out.
    """

    def __init__(self, from_lsn: int) -> None:
        self._from_lsn = from_lsn
        self._is_behind = False  #: something was told that ended later, so all that follows does
        self._told: dict[int, Description] = {}
        self._in_force: dict[int, Description] = {}

    def go_on(self, from_lsn: int) -> None:
        """Leave out once more what ended at or before an LSN: what comes next begins with some of it."""
        self._from_lsn, self._is_behind = from_lsn, False

    def tell(
        self,
        data: bytes,
        lengths: UInt32s,
        needs: Mapping[int, Description],
        *,
        describes: Mapping[int, Description] | None = None,
        open_lsn: int = 0,
    ) -> tuple[bytes, UInt32s]:
        """Return what the hearer is told of a stretch; nothing, if it ended before.

        Args:
            data: Its payloads.
            lengths: Bytes of each.
            needs: Relations whose rows come before it describes them, if it does.
            describes: Relations that it describes itself, as it leaves them; None: that is not known.
            open_lsn: Commit LSN of the transaction that it is a part of; 0: all are whole.
        """
        self._in_force |= needs
        if self._is_behind and describes is not None and self._is_told(needs):
            self._in_force |= describes
            self._told |= describes
            return data, lengths
        messages = StreamMessages(data, lengths)
        first = self._first(messages, open_lsn)
        for one in messages.described():
            if one.message < first:
                self._in_force[one.oid] = one.description
        if first:
            data, lengths = messages.behind(first)
            messages = StreamMessages(data, lengths)
        return self._with_descriptions(messages, data, lengths)

    def _is_told(self, needs: Mapping[int, Description]) -> bool:
        return all(is_same(self._told.get(oid), description) for oid, description in needs.items())

    def _first(self, messages: StreamMessages, open_lsn: int) -> int:
        """Return the number of the first message that is to be told."""
        if self._is_behind:
            return 0
        if open_lsn:
            is_over = open_lsn < self._from_lsn
            self._is_behind = not is_over
            return len(messages.lengths) if is_over else 0
        commits = messages.commits
        over = commits[messages.end_lsns(commits) <= self._from_lsn]
        self._is_behind = len(over) < len(commits)
        return int(over[-1]) + 1 if len(over) else 0

    def _with_descriptions(self, messages: StreamMessages, data: bytes, lengths: UInt32s) -> tuple[bytes, UInt32s]:
        itself: dict[int, int] = {}
        described = messages.described()
        for one in described:
            itself.setdefault(one.oid, one.message)
        missing: list[tuple[int, int, Description]] = []
        for oid, message in messages.first_uses().items():
            known = self._in_force.get(oid)
            is_first = message < itself.get(oid, len(lengths))
            if known is not None and is_first and not is_same(self._told.get(oid), known):
                missing.append((message, oid, known))
                self._told[oid] = known
        for one in described:
            self._in_force[one.oid] = self._told[one.oid] = one.description
        return _inserted(messages, missing) if missing else (data, lengths)


def _inserted(messages: StreamMessages, missing: list[tuple[int, int, Description]]) -> tuple[bytes, UInt32s]:
    parts: list[bytes] = []
    lengths: list[UInt32s] = []
    at = 0
    for message, _, description in sorted(missing, key=lambda one: one[:2]):
        begin = int(messages.starts[at]) if at < len(messages.starts) else len(messages.view)
        parts += (messages.view[begin : int(messages.starts[message])].tobytes(), *description)
        lengths += (messages.lengths[at:message], np.array([len(part) for part in description], np.uint32))
        at = message
    rest, rest_lengths = messages.behind(at)
    return b"".join((*parts, rest)), np.concatenate((*lengths, rest_lengths)).astype(np.uint32)


__all__ = ["Retelling"]
