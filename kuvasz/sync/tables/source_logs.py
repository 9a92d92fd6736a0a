"""The parking logs of one source's tables, each as the lake knows of it.

What is parked of a table belongs to what the lake has of it: the lake's table holds the log's id from before the
first change is parked until all of them are in the lake. So a log that was lost, or is another one, is found out.
"""

from __future__ import annotations

import threading
import uuid

from kuvasz import failpoints, lsn
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, ParkedLost, place_of, resume_of, resync_of, rewound
from kuvasz.model import SourcePosition
from kuvasz.modes.veil import Veil
from kuvasz.parking.ports import LogDamaged
from kuvasz.state.ports import StoredRecord
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.few_keys import FewKeys
from kuvasz.sync.rules.targets import target_of

#: Begins the id of a log that counts no more.
_LOST = "lost-"


class SourceLogs:
    """The logs of one source. What may block is called in threads.

    Args:
        context: The context of the source.
        record: What the source may have let go of.
    """

    def __init__(self, context: SourceContext, record: StoredRecord) -> None:
        self._name = context.source.name
        self._lot = context.shared.lot
        self._mask_secret = context.shared.mask_secret
        self._lake = context.shared.lake
        self._progress = context.shared.progress
        self._states = context.shared.states
        self._troubles = context.troubles
        self._record = record
        self._lost: FewKeys[str] = FewKeys()
        # A thread whose task was cancelled may still be at it when the next stream begins.
        self._lock = threading.RLock()

    # From any thread

    def has(self, target: str) -> bool:
        """Whether a table lacks what is parked of it."""
        return self._lot.has(target, self._name)

    def is_lost(self, target: str) -> bool:
        """Whether what was parked of a table is gone, so that only a copy brings it."""
        return target in self._lost

    def last_lsn(self, target: str) -> int:
        """Return the commit LSN of the newest transaction of a table that is parked; 0 for none."""
        return self._lot.last_lsn(target, self._name)

    def targets(self) -> frozenset[str]:
        """Return the tables with a log."""
        return frozenset(target for target, source in self._lot.views() if source == self._name)

    @property
    def is_replaying(self) -> bool:
        """Whether a table that follows lacks what is parked of it."""
        return any(self._states.is_streaming(target, self._name) for target in self.targets())

    def begin(self, spec: SourceTableSpec, epoch: int) -> None:
        """Park what comes with this connection and later ones: the source is let go when it has begun."""
        veil = Veil(target_of(spec, self._mask_secret))
        self._lot.begin(spec.identifier, self._name, epoch, veil)

    # In threads

    def admit(self, spec: SourceTableSpec) -> None:
        """Find out whether a prepared table lacks anything that is parked, or should be.

        Raises:
            ParkedLost: It should be, and is not there.
            LakeRewound: It is, and the lake knows nothing of that any more.
            LakeError, StateError: That cannot be found out.
        """
        target, name = spec.identifier, self._name
        with self._lock:
            noted = self._lake.notes.parked(target, name)
            position = self._lake.position(target, name)
            if noted is None or position is None:
                # A copy brings all of it.
                if noted is not None:
                    self._lake.notes.park(target, name, None)
                if position is not None:
                    self._refuse_rewound(spec, position)
                self.drop(target)
            elif self._lot.id_of(target, name) != noted:
                try:
                    self._lot.load(target, name, noted)
                except LogDamaged as error:
                    self._lost.add(target)
                    raise self._why_lost(spec, position, error) from error
                self._lost.discard(target)

    def _refuse_rewound(self, spec: SourceTableSpec, position: SourcePosition) -> None:
        """Refuse a table that has a log with more than the lake has, of which the lake has no note.

        A log is noted before anything is parked in it, and finished before the note goes: so the note was there once.

        Raises:
            LakeRewound: It is such a one.
        """
        try:
            parked_lsn = self._lot.unfinished_lsn(spec.identifier, self._name)
        except LogDamaged as error:
            raise rewound(spec.identifier, self._name, f"it had parked changes once, and {error}") from error
        if parked_lsn >= position.lsn:  # as `SourcePosition` says, that transaction is still to be applied
            why = f"its changes up to {lsn.render(parked_lsn)} were parked, and it knows nothing of that"
            raise rewound(spec.identifier, self._name, why)

    def check(self, spec: SourceTableSpec) -> None:
        """Say so if a table's log is gone; its source is held from then on."""
        target = spec.identifier
        with self._lock:
            position = self._lake.position(target, self._name)
            try:
                self._lot.check(target, self._name)
            except LogDamaged as error:
                self._progress.hold(self._name, target)
                self._lot.drop(target, self._name)
                self._lost.add(target)
                if position is not None:
                    self._troubles.fail(spec, self._why_lost(spec, position, error))

    def lose(self, spec: SourceTableSpec, error: LogDamaged) -> None:
        """Put a table into error, and hold its source, whose log turns out not to be what was written."""
        position = self._lake.positions(spec.identifier)[self._name]
        self._lost.add(spec.identifier)
        self._progress.hold(self._name, spec.identifier)
        self._troubles.fail(spec, self._why_lost(spec, position, error))

    def abandon(self, spec: SourceTableSpec) -> None:
        """Have nobody take a lost log for whole again, wherever it turns up: what comes from now on is not in it.

        Raises:
            LakeError, TableError: The lake cannot be told.
        """
        target = spec.identifier
        with self._lock:
            noted = self._lake.notes.parked(target, self._name)
            if noted is not None and not noted.startswith(_LOST):
                self._lake.notes.park(target, self._name, f"{_LOST}{uuid.uuid4().hex}")

    def _why_lost(self, spec: SourceTableSpec, position: SourcePosition, error: LogDamaged) -> ParkedLost:
        begin, end = lsn.render(position.lsn), lsn.render(self._record.standing.confirmed_lsn)
        command = resync_of(spec.identifier)
        if self._states.get(spec.identifier, self._name).is_paused:
            command += f", and then {resume_of(spec.identifier)}"
        return ParkedLost(
            f"{place_of(self._name, spec.table)}: changes between {begin} and {end} may be missing: they"
            f" were parked, and {error}",
            hint=f"copy the table again: {command}",
        )

    def drop(self, target: str) -> None:
        """Let go of what is parked of a table: the lake has it, or a copy will."""
        with self._lock:
            self._lost.discard(target)
            self._lot.drop(target, self._name)

    def open(self, spec: SourceTableSpec) -> None:
        """Make a table's log, if it has none yet, and have the lake know; nothing is parked yet.

        Raises:
            ParkedLost, LakeError, TableError, StateError: There is none.
        """
        target = spec.identifier
        with self._lock:
            self.admit(spec)
            if not self.has(target):
                log_id = self._lot.create(target, self._name)
                try:
                    self._lake.notes.park(target, self._name, log_id)
                except BaseException:
                    self.drop(target)
                    raise
                failpoints.hit("park_noted", LakeError)

    def close(self, target: str) -> None:
        """Remove a table's log: everything in it is in the lake.

        Raises:
            LakeError, StateError: It cannot be noted, or removed.
        """
        with self._lock:
            failpoints.hit("before_unpark", LakeError)
            self._lot.finish(target, self._name)
            self._lake.notes.park(target, self._name, None)
            failpoints.hit("after_unpark", LakeError)
            self.drop(target)


__all__ = ["SourceLogs"]
