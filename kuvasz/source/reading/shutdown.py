"""Whether a server is shutting down and waits for this stream alone. Pure.

A server that is shut down (`smart` or `fast`) ends when its walsenders have, and those end when everything they have
sent is confirmed as flushed; until then each reply is answered by another keepalive that asks for one (manual,
section 54.4; `WalSndDone` in walsender.c). What cannot be confirmed would keep the server from ending, and what
kuvasz waits for may be that very server.
"""

from __future__ import annotations

#: Seconds in which what is on its way to the lake may still be confirmed.
PATIENCE_S = 5.0

#: A server that runs asks twice in its wal_sender_timeout; one that is shutting down, at once.
_LONGEST_PAUSE_S = 1.0
_LEAST_ASKED = 20


class ShutdownWatch:
    """Counts how often one connection was asked for a reply without anything else being said."""

    def __init__(self) -> None:
        self._began_at = self._asked_at = 0.0
        self._asked = 0
        self._lsns = (0, 0)

    def asked(self, now_s: float, received_lsn: int, confirmed_lsn: int) -> bool:
        """Take a keepalive that asks for a reply; return whether the server only waits for this stream to end.

        Args:
            now_s: Monotonic time.
            received_lsn: How far the source was heard out.
            confirmed_lsn: How far that was confirmed.
        """
        lsns = (received_lsn, confirmed_lsn)
        if lsns != self._lsns or now_s - self._asked_at > _LONGEST_PAUSE_S:
            self._began_at, self._asked, self._lsns = now_s, 0, lsns
        self._asked_at = now_s
        self._asked += 1
        return self._asked >= _LEAST_ASKED and now_s - self._began_at >= PATIENCE_S


__all__ = ["PATIENCE_S", "ShutdownWatch"]
