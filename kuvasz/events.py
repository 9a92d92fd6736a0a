"""What kuvasz tells its log: every event with its code, level and message, and the one way to tell it."""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from logging import DEBUG, ERROR, INFO, WARNING
from typing import TypeAlias

_TRACEBACK = "traceback"

#: Between two words on what goes on happening, and on what comes and goes.
_AGAIN_S = 3600.0
_SOON_S = 60.0


@enum.unique
class Event(enum.Enum):
    """Something that happened. A record's field `event` has its code, which stays, for people search for it.

    Events of one code are one thing that comes about in several ways, each with a message of its own.

    An ERROR is for a person to look at, a WARNING was overcome or is tried again, an INFO tells of beginnings, ends
    and changes; a DEBUG is printed where the map's `log.level` asks for it.
    """

    def __init__(self, code: str, level: int, message: str, *flags: str) -> None:
        self.code = code
        self.level = level
        self.message = message
        self.has_traceback = _TRACEBACK in flags  #: of the exception that is handled where it is told

    # The whole of kuvasz.
    SERVING = "serving", INFO, "serving"
    LAKE_OPENING = "lake_opening", INFO, "starting spark"
    SPARK_SAID = "spark_said", WARNING, "spark says"
    LAKE_OPEN = "lake_open", INFO, "the lake is open"
    CAUGHT_UP = "caught_up", INFO, "caught up"
    MAP_TAKEN = "map_taken", INFO, "the map is taken over"
    MAP_CHANGED = "map_changed", INFO, "the map's file is changed, and taken over"
    MAP_REFUSED = "map_refused", WARNING, "the map is not taken over: nothing was changed"
    MAP_RETRY = "map_retry", WARNING, "sources of the new map cannot begin yet"
    MAP_IN_USE = "map_in_use", INFO, "the new map is in use"
    STANDING_BY = "standing_by", INFO, "another process replicates: this one stands by"
    LEASE_TAKEN = "lease_taken", INFO, "this process replicates from now on"
    STATE_ADOPTED = "state_adopted", INFO, "what was remembered before is in the coordinator now"
    LEASE_UNRENEWED = "lease_unrenewed", WARNING, "the lease could not be renewed"
    LOG_OPEN = "log_open", INFO, "changes are staged in the lake's store before sources let go of them"
    READING_BEGUN = "reading_begun", INFO, "a source is read as the process that applies has ordered it"
    SOURCES_TAKEN = "sources_taken", INFO, "this process reads sources from now on that nobody read"
    SOURCE_GIVEN_BACK = "source_given_back", INFO, "a source is left to another process that reads"
    GROUPS_TAKEN = "groups_taken", INFO, "this process applies groups from now on that nobody applied"
    GROUP_GIVEN_BACK = "group_given_back", INFO, "a group is left to another process that applies"
    STAGING_FAILED = "staging_failed", WARNING, "nothing can be staged now: sources keep their changes"
    STAGING_GOES_ON = "staging_goes_on", INFO, "changes are staged again"
    LOG_STUCK = "log_stuck", WARNING, "what the lake has by now cannot go from the staged log: it is tried again"
    LOG_GROUP_LATE = "log_group_late", WARNING, "another group is behind, and the log keeps all that it lacks"
    LEASE_LOST = "lease_lost", ERROR, "the lease is lost: this process ends"
    MAP_DIFFERS = "map_differs", WARNING, "the process that replicates has another map: this one takes nothing over"
    COORDINATOR_SILENT = "coordinator_silent", WARNING, "the coordinator does not answer: it is asked again"
    TLS_RENEWED = "tls_renewed", INFO, "the certificate is read again"
    TLS_REFUSED = "tls_refused", WARNING, "the certificate is not taken: the one before stays in use"
    AUDIT_DONE = "audit", INFO, "a request was carried out"
    AUDIT_REFUSED = "audit", WARNING, "a request was refused"
    AUDIT_FAILED = "audit", WARNING, "a request failed"
    TOKEN_UNREAD = "token_unread", WARNING, "a token of the map cannot be read: nobody is let in by it"
    PAUSE = "pause", INFO, "a person pauses a table"
    RESUME = "resume", INFO, "a person resumes a table"
    RETRY = "retry", INFO, "a person retries a table"
    CUT = "cut", INFO, "a cut: tables are tagged at one LSN of each source"
    TABLE_VERIFIED = "table_verified", INFO, "a table equals its source"
    TABLE_DIFFERS = "table_differs", ERROR, "a table differs from its source"
    VERIFY_FAILED = "verify_failed", WARNING, "a table could not be compared with its source and is tried again"
    PUBLISHED = "published", INFO, "main shows what the branch has"
    CUT_MISSED = "cut_missed", WARNING, "a cut of the schedule cannot be made now and is tried again"
    RESYNC = "resync", INFO, "a person resyncs a table"
    ERASING = "erasing", INFO, "rows are being erased: nothing is replicated meanwhile"
    ERASED = "erased", INFO, "rows are erased for good"
    ERASED_IN_PART = "erased", ERROR, "rows are erased, and the receipt names what is left"
    ERASURE_FAILED = "erasure_failed", ERROR, "rows are not erased"

    # A source and its stream.
    STREAM_BEGUN = "reader.streaming", INFO, "stream of a source begins"
    STREAM_FAILED = "reader.failed", WARNING, "stream of a source failed"
    STREAM_CONFIRMED = "reader.confirmed", DEBUG, "confirmed to a source"
    SOURCE_FAILED = "source_failed", WARNING, "a source is not replicated now"
    SOURCE_UNFORESEEN = "source_unforeseen", ERROR, "a source is not replicated now", _TRACEBACK
    SOURCE_STOPPED = "source_stopped", ERROR, "a source stops"
    SOURCE_RELEASED = (
        "source_released",
        WARNING,
        "a source left the map: its slot and publication stay, and the slot holds its WAL",
    )
    SOURCE_RELEASED_WHOLE = "source_released", INFO, "a source left the map: its slot and publication are dropped"
    SOURCE_UNHEARD = "source_unheard", INFO, "a source left the map: this group hears nothing of it any more"
    SLOT_LOST = "slot_lost", WARNING, "the stream was lost: the source is copied again"
    SLOT_LOST_REPAIRED = "slot_lost", WARNING, "the stream was lost: the source is compared with the lake"
    SLOT_LOST_AGAIN = "slot_lost", ERROR, "the stream was lost while all was copied: the next copy waits"
    UPGRADED = (
        "upgraded",
        INFO,
        "pg_upgrade has made a source's cluster anew: it goes on where the lake is",
    )
    UPGRADE_UNPROVED = (
        "upgrade_unproved",
        WARNING,
        "another cluster answers, and it is not proved to be the one before as pg_upgrade makes it anew",
    )
    READER_ENDED = "reader_ended", INFO, "the session of a process that has lost its lease is ended"
    SLOT_WAITS = "slot_waits", WARNING, "the slot waits for transactions to end"
    SLOTWATCH_FAILED = "slotwatch.failed", DEBUG, "a slot could not be looked at"
    SNAPSHOT = "snapshot", INFO, "snapshot for a new table"
    STANDBY_SNAPSHOT = "standby_snapshot", INFO, "tables are copied from a standby"
    PUBLICATION = "publication", INFO, "publication changed"
    STANDING_FAILED = "standing_failed", WARNING, "the standing of a source could not be kept"

    # What a source's tables become.
    SCHEMA_CHANGED = "schema_changed", INFO, "a source table changed"
    CHILDREN_UNMAPPED = (
        "children_unmapped",
        WARNING,
        "tables that inherit from a table of the map are not in it: their rows are not replicated",
    )
    KEY_NOT_UNIQUE = (
        "key_not_unique",
        WARNING,
        "nothing at the source keeps rows of one key apart: a later row of a key replaces the earlier",
    )
    COLUMN_LIST_MISSING = (
        "column_list_missing",
        WARNING,
        "columns that the map leaves out leave the source, though it asks for a list of columns",
    )
    ROW_FILTER_MISSING = (
        "row_filter_missing",
        WARNING,
        "rows outside the filter leave the source, though the map asks for a row filter",
    )
    TABLE_RENAMED = (
        "table_renamed",
        WARNING,
        "a source table has another name than in the map, and is followed under it",
    )
    PATTERN_LEAVES_OUT = (
        "pattern_leaves_out",
        WARNING,
        "a table is like a pattern of the map, and is not taken in",
    )
    MEMBER_RENAMED = "members_changed", INFO, "a table was renamed"
    MEMBER_ADDED = "members_changed", INFO, "a table is taken in"
    MEMBER_GONE = "members_changed", WARNING, "a table is gone; its rows stay in the lake"
    PARTITIONS_CHANGED = (
        "partitions_changed",
        WARNING,
        "partitions of a table changed: it is compared with its source",
    )
    PARTITIONS_KEPT = "partitions_kept", WARNING, "partitions of a table changed; its rows stay as they are"
    PARTITIONS_UNSEEN = "partitions_unseen", DEBUG, "the partitions could not be looked at"
    PARTITION_UNREAD = (
        "partition_unread",
        WARNING,
        "a new partition cannot be read; nobody knows whether it was attached with rows",
    )
    PATROL_FAILED = "patrol_failed", DEBUG, "the catalog cannot be looked at"
    PATROL_FAILED_AT_TABLE = "patrol_failed", WARNING, "a table's columns cannot be compared with the lake's now"

    # Tables that are copied, stop and go on.
    COPYING = "copying", DEBUG, "copying"
    COPIED = "copied", INFO, "table copied"
    COPIED_OVER = "copied_over", WARNING, "rows of a source are replaced by a new copy, its earlier ones with them"
    ROWS_REJECTED = "rows_rejected", WARNING, "rows do not fit their table and are in the table of rejects instead"
    COPY_SKIPPED = "copy_skipped", INFO, "a table follows from here on: the rows that it has are left out"
    COPY_RETRY = "copy_retry", WARNING, "a copy failed and is tried again"
    COPY_RESUMED = "copy_resumed", INFO, "a copy that was cut off goes on"
    COPY_BEGUN_AGAIN = "copy_begun_again", WARNING, "a copy begins again: what is finished of it is of no use"
    LEDGER_FAILED = "ledger_failed", WARNING, "what is finished of a copy could not be kept"
    SNAPSHOT_DONE = "snapshot_done", INFO, "tables of a source are copied once, but for those in error"
    COPY_PAUSED = "copy_paused", INFO, "a copy waits for its next hours"
    COPY_GOES_ON = "copy_goes_on", INFO, "a copy goes on: its hours have begun"
    COPIED_AGAIN = "copied_again", INFO, "a table is copied again"
    COPIED_AGAIN_REWOUND = (
        "copied_again",
        WARNING,
        "a table has rows of an earlier past of its source and is copied again",
    )
    COPIED_AGAIN_LOST = "copied_again", WARNING, "parked changes were lost: the table is copied again"
    COPIED_AGAIN_FULL = "copied_again", WARNING, "too many changes were parked: the table is copied again"
    GAP_FOUND = (
        "gap_found",
        WARNING,
        "a table was not published without interruption, and is compared with its source",
    )
    REPAIRED = "repaired", INFO, "a gap is closed"
    READMITTED = "readmitted", INFO, "a table is taken up again"
    TABLE_FAILED = "table_failed", ERROR, "a table stops"
    TABLE_UNFORESEEN = "table_unforeseen", ERROR, "a table cannot be looked at", _TRACEBACK
    TABLE_UNMAPPED = "table_unmapped", WARNING, "a table is not in the map any more: its changes are not kept"
    TABLE_BACK = "table_back", WARNING, "a table is in the map again, and missed changes meanwhile"
    ROWS_TAKEN_OVER = (
        "rows_taken_over",
        WARNING,
        "another table has the sid of a source's rows: they are copied again when it gets that back",
    )
    NOTE_FAILED = "note_failed", WARNING, "the state of a table could not be kept"
    VERDICTS_FAILED = "verdicts_failed", WARNING, "what comparisons found could not be kept"
    FEEDS_FAILED = "feeds_failed", WARNING, "which tables the sources feed could not be kept"
    RELATION_FILES_FAILED = (
        "relation_files_failed",
        WARNING,
        "which files the tables of a source have could not be kept",
    )
    WITNESS_FAILED = "witness_failed", WARNING, "the positions of a table could not be kept"

    # Changes that wait on local disk.
    PARKED = "parked", INFO, "a table is parked"
    PARKING_FULL = "parking_full", WARNING, "no more changes are parked: the source keeps them"
    PARKING_FAILED = "parking_failed", WARNING, "a table cannot be parked: its source keeps its changes"
    PARKING_FAILED_AT_DROP = "parking_failed", WARNING, "a table's parked changes cannot be dropped"
    PARKING_FAILED_AT_END = "parking_failed", WARNING, "parked changes were applied and cannot be removed yet"
    REPLAYING = "replaying", INFO, "parked changes are applied"
    REPLAY_RETRY = "replay_retry", WARNING, "parked changes cannot be applied now"
    UNPARKED = "unparked", INFO, "parked changes are applied and removed"

    # Commits.
    CHANGES = "changes", INFO, "changes of a source"
    CHANGES_OF_OTHERS = "changes", INFO, "changes of further sources"
    COMMITTED = "committed", DEBUG, "committed"
    WRITTEN = "written", DEBUG, "written"
    DURABLE = "durable", DEBUG, "durable"
    JOB_RETRY = "job_retry", WARNING, "a job failed and is tried again"
    COMMIT_RETRY = "commit_retry", WARNING, "a commit failed and is tried again"
    COMMIT_FOUND = "commit_found", WARNING, "the answer of a commit was lost, but it is there"
    GROUP_TORN = "group_torn", ERROR, "the catalog shows a commit of a group in part; the other tables follow"
    COMMITS_STUCK = "commits_stuck", WARNING, "commits are stuck; other tables go on"
    FOREIGN_COMMIT = "foreign_commit", WARNING, "someone else changed the table"
    NO_EXECUTOR = "no_executor", WARNING, "waiting for an executor"
    INSIDE_FAILED = "inside_failed", DEBUG, "the class for the JVM was not compiled", _TRACEBACK
    COMMIT_FILES_PLAIN = "commit_files_plain", INFO, "commits of a table ask its store more often than they need to"
    LOCALFS_FAILED = "localfs_failed", DEBUG, "no plain local file system", _TRACEBACK
    REHEARSAL_FAILED = "rehearsal_failed", DEBUG, "the rehearsal of commits failed", _TRACEBACK

    # Tables of the lake.
    CREDENTIALS_RENEWED = "credentials_renewed", INFO, "other credentials of the lake count from now on"
    CREDENTIALS_REFUSED = (
        "credentials_refused",
        WARNING,
        "the catalog lets nobody in by the credentials that the map's files have now: those before are used",
    )
    TABLE_UNSEEN = "table_unseen", DEBUG, "a lake table could not be looked at"
    LAYOUT_CHANGED = "layout_changed", INFO, "the layout of a table changed"
    TABLE_REMADE = "table_remade", WARNING, "a table is of another type or key: its sources are copied anew"
    KEYS_TWICE = "keys_twice", WARNING, "a file of a table has rows with the same key: kuvasz verify --fix mends them"
    INDEX_BROUGHT = "index_brought", INFO, "an index was brought from the store, where another process had kept it"
    INDEX_KEPT = "index_kept", INFO, "an index is kept in the store"
    INDEX_LEFT = "index_left", WARNING, "an index cannot be brought from the store: keys are read from the table"
    INDEX_READ = "index_read", INFO, "reading keys of files"
    INDEX_SET_BACK = "index_set_back", WARNING, "a lake table is not what its index describes, which is read anew"
    INDEX_UNKEPT = "index_unkept", WARNING, "an index could not be kept in the store; it is tried again"
    INDEX_UNSAVED = "index_unsaved", WARNING, "an index could not be kept"
    LAKE_REWOUND = "lake_rewound", ERROR, "a lake table was set back"
    LAKE_REWOUND_MENDED = "lake_rewound_mended", WARNING, "a lake table was set back: it is compared with its source"
    COMPACTED = "compacted", INFO, "compacted"
    ORPHANS_REMOVED = "orphans_removed", INFO, "orphans removed"
    ORPHANS_LEFT = (
        "orphans_left",
        WARNING,
        "files that no snapshot knows are left: another table has its files in the folder, too",
    )
    CLEAN_BRANCH = "clean_branch", INFO, "the branch was set"
    CLEAN_BRANCH_LEFT = "clean_branch_left", INFO, "the branch was left where it is"
    MAINTENANCE_FAILED = "maintenance_failed", WARNING, "a table was not maintained; it is tried again"

    # Tables about the lake.
    ABOUT_FAILED = "about_failed", WARNING, "a table about the lake could not be written; it is tried again"
    NOTICES_FAILED = "notices_failed", WARNING, "a webhook does not take what it is told; it is told again"
    NOTICES_GO_ON = "notices_go_on", INFO, "a webhook takes what it is told again"
    NOTICES_DROPPED = "notices_dropped", WARNING, "what a webhook is to be told found no room, and is lost"
    NOTICES_UNKEPT = "notices_unkept", WARNING, "how far a webhook has been told cannot be kept: it may be told twice"
    ABOUT_LOST = "about_lost", WARNING, "rows for a table about the lake found no room, and are lost"

    # Kuvasz itself.
    TRACING_FAILED = "tracing_failed", WARNING, "traces cannot be sent"
    LOG_FILE_FAILED = "log_file_failed", WARNING, "the log's file cannot be written: its lines go to stderr"
    BUG_IN_COMMIT = "bug", ERROR, "a commit failed in our own code", _TRACEBACK
    BUG_IN_MAINTENANCE = "bug", ERROR, "maintenance failed in our own code", _TRACEBACK
    BUG_IN_WORKER = "bug", ERROR, "a worker died", _TRACEBACK
    BUG_IN_MAP = "bug", ERROR, "reading the map again failed in our own code", _TRACEBACK
    BUG_IN_STAGING = "bug", ERROR, "the thread that stages died", _TRACEBACK
    BUG_IN_OBSERVER = "bug", ERROR, "the observer failed", _TRACEBACK


#: Told of an event and its facts, in whichever thread tells it; it must neither fail nor wait.
Listener: TypeAlias = Callable[[Event, Mapping[str, object]], None]

_listeners: tuple[Listener, ...] = ()


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have someone hear of all events while the body runs, whatever the log prints of them."""
    global _listeners  # noqa: PLW0603 (one process has one log)
    _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        _listeners = tuple(one for one in _listeners if one is not listener)


class EventLog:
    """The log of one module, which tells events under the module's name."""

    __slots__ = ("_logger",)

    def __init__(self, module: str) -> None:
        self._logger = logging.getLogger(module)

    def is_told(self, event: Event) -> bool:
        """Whether the log has an event: the facts of those that come all the time are gathered only then."""
        return self._logger.isEnabledFor(event.level)

    def tell(self, event: Event, /, **facts: object) -> None:
        """Tell that something happened, with the facts in the order in which they are given."""
        self._logger.log(
            event.level,
            event.message,
            exc_info=event.has_traceback or None,
            extra={"event": event.code, **facts},
            stacklevel=2,
        )
        for listener in _listeners:
            listener(event, facts)


class EventLimit:
    """When to tell of what may happen again with all that is done: as it begins, and once an hour while it lasts.

    Args:
        clock: Monotonic seconds.
    """

    __slots__ = ("_clock", "_due", "_soon")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = self._soon = -math.inf

    def is_news(self) -> bool:
        """Take note that it happens again; return whether to tell of it."""
        now = self._clock()
        if now < self._due:
            return False
        self._due, self._soon = now + _AGAIN_S, now + _SOON_S
        return True

    def over(self) -> None:
        """Take note that all went well: what happens after that is news, unless it comes and goes."""
        self._due = self._soon


__all__ = ["Event", "EventLimit", "EventLog", "Listener", "heard_by"]
