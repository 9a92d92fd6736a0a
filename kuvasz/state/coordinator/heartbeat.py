"""The heartbeat of a node: it says that it lives, and asks for more time as long as it holds the lease.

Two threads of its own, never the loop that works: one talks to the coordinator, the other one looks at the clock, for
the first may be waiting for an answer when the lease ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

import psycopg

from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
from kuvasz.state.coordinator.lease import ClusterLease, clock_s
from kuvasz.state.coordinator.nodes.node_list import NodeList

_log = EventLog(__name__)

#: Of a lease: how often it is renewed, and how long before its end a holder stops that could not renew it.
_RENEWALS: Final = 5
_MARGIN: Final = 0.2

_LOOK_S: Final = 0.1


class Heartbeat:
    """The heartbeat.

    Args:
        database: The coordinator.
        lease: What is renewed.
        nodes: What is signed.
        on_lost: Told why the lease is lost, once, from a thread of the heartbeat, before anybody else can have it.
    """

    def __init__(
        self, database: CoordinatorDatabase, lease: ClusterLease, nodes: NodeList, on_lost: Callable[[str], None]
    ) -> None:
        self._database = database
        self._lease = lease
        self._nodes = nodes
        self._on_lost = on_lost
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.map_digest = ""

    def start(self) -> None:
        """Begin."""
        self._stop.clear()
        self._threads = [
            threading.Thread(target=beat, name=name, daemon=True)
            for beat, name in ((self._beat, "heartbeat"), (self._guard, "lease"))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._lease.lease_s)
        self._threads = []

    def _beat(self) -> None:
        pause_s = self._lease.lease_s / _RENEWALS
        while not self._stop.is_set():
            try:
                # A session of its own: whoever else waits for one does not make it late.
                with psycopg.connect(self._database.conninfo(), autocommit=True) as session:
                    self._database.make_ready(session)
                    while not self._stop.is_set():
                        self._once(session)
                        self._stop.wait(pause_s)
            except psycopg.Error as error:
                if not self._stop.is_set():
                    _log.tell(Event.LEASE_UNRENEWED, reason=str(self._database.failed("renew the lease", error)))
            except KuvaszError as error:
                _log.tell(Event.LEASE_UNRENEWED, reason=str(error))
            self._stop.wait(min(1.0, pause_s))

    def _once(self, session: Session) -> None:
        self._nodes.sign(session, self.map_digest)
        if self._lease.is_held and not self._lease.renew(session, self.map_digest):
            self._lose("another process has taken it")

    def _guard(self) -> None:
        margin_s = _MARGIN * self._lease.lease_s
        while not self._stop.wait(_LOOK_S):
            if self._lease.is_held and clock_s() > self._lease.ends_at - margin_s:
                self._lose("it could not be renewed in time")

    def _lose(self, why: str) -> None:
        self._lease.is_held = False
        with contextlib.suppress(Exception):  # whatever becomes of the log
            _log.tell(Event.LEASE_LOST, reason=why)
        self._on_lost(why)


__all__ = ["Heartbeat"]
