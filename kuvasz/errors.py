"""Every error kuvasz raises on purpose, in one tree.

    KuvaszError                exit  retry   scope
    ├── ConfigError              2   never   process   the map, the environment or a flag is wrong
    │   ├── MapMismatch          2   never   process   an option of a table does not fit the source's columns
    │   └── MapBusy              2   never   process   another map is just being put into use
    ├── CutRefused               1   never   process   a table is not where its source is, or it took too long
    ├── MapUnwritten             1   never   process   the map's file cannot be written
    ├── CheckError               3   human   process   nothing passed the pre-flight
    ├── SourceError              1   timed   source    connection lost, server restarting, slot in use
    │   ├── SourceRefused        3   human   source    privilege, wal_level, publication: needs SQL at the source
    │   ├── SourceTooLarge       1   timed   source    it has more tables than the map may take in
    │   ├── SourceLocked         1   timed   source    somebody has locked a table, and more than a look is needed
    │   ├── SourceSlow           1   timed   source    rows come slowly, where others would have to wait for them
    │   └── SlotLost             5   human   source    slot gone or invalidated
    │       └── SourceReplaced   5   human   source    another cluster, an older backup or a late standby answers
    ├── TableError               1   human   table     one table cannot go on; the others do
    │   ├── DecodeError          1   human   table     a value that its column's type cannot hold
    │   ├── RowTooLarge          1   human   table     a row is larger than `pipeline.max_row_bytes`
    │   ├── SchemaError          1   human   table     source and lake disagree on columns or key
    │   │   ├── OptionRefused    2 human   table     an option of the map does not fit its table's columns
    │   │   │   └── ExpressionRefused  2 human table   an expression of the map does not
    │   │   ├── SchemaAwaited    1   human   table     it changed what other sources have not changed yet
    │   │   ├── SchemaHeld       1   human   table     the table changed and the map says `on_schema_change: hold`
    │   │   ├── LostTrack        1   human   table     rows of its backlog cannot be taken, however often they come
    │   │   ├── RowsUnlogged     1   human   table     rows may have changed that the write-ahead log does not have
    │   │   ├── ColumnsUnclear   1   human   table     no look at the catalog proves what columns a row means
    │   │   └── CopyNeeded       1   human   table     the table is copied again, by kuvasz itself
    │   ├── VersionLost          1   human   table     an updated row leaves out what the lake does not have
    │   ├── ForeignChange        1   human   table     someone else changed the table in the lake
    │   ├── ChangesLost          1   human   table     changes are lost that no comparison brings back
    │   ├── OtherRule            1   human   table     rows are there that another rule of the map made
    │   ├── TableTaken           2   human   table     it is another deployment's, which hears the same log
    │   ├── TableGone            1   human   table     someone dropped the table from the lake
    │   ├── LakeRewound          1   human   table     someone set the table back in the lake
    │   ├── ParkedLost           1   human   table     changes were parked, and what they were parked in is gone
    │   └── EarlierError         1   human   table     what was wrong before this start, until the table is looked at
    ├── LakeError                1   timed   table     catalog or storage failed; nothing was committed
    │   ├── LateCommit           1   timed   table     a commit of a process that was killed came in after all
    │   ├── TableStuck           1   timed   table     catalog or storage fail for this table alone
    │   ├── JobFailed            1   timed   table     a job of Spark ended without a result
    │   └── OutcomeUnknown       1   timed   table     the commit's answer was lost: look before trying again
    ├── StateError               1   human   process   the state folder cannot be read or written
    │   └── StateTaken           2   human   process   another process owns the state folder
    └── InternalError            1   never   process   a broken promise of our own code

Messages are lower case, begin with the place (`place_of`), carry the value, and end with a ``hint:`` line that names
the next action. They never carry a password (see `kuvasz.config.secrets`), nor what steers a terminal, whatever a
source calls its tables (see `kuvasz.shown.escapes`).
"""

from __future__ import annotations

import enum
import shlex
from typing import ClassVar, Final

from typing_extensions import override

from kuvasz.shown import escapes


class Retry(enum.Enum):
    """Who may try again, and when."""

    TIMED = "timed"  #: kuvasz itself, with backoff
    HUMAN = "human"  #: a person, after mending the cause
    NEVER = "never"


class Scope(enum.Enum):
    """How much stops because of an error."""

    TABLE = "table"
    SOURCE = "source"
    PROCESS = "process"


#: Characters of a message, but of one that is a list of faults.
_MOST: Final = 8000


class KuvaszError(Exception):
    """The root. ``str()`` gives the message with its hint.

    Args:
        message: Lower case, with value and place.
        hint: What to do next; None only where nothing can be done.
    """

    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = Retry.NEVER
    scope: ClassVar[Scope] = Scope.PROCESS
    has_lines: ClassVar[bool] = False  #: the message may be a list, with a line for each fault
    is_public: ClassVar[bool] = False  #: the message quotes no value of any row, whoever wrote it

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if len(message) > _MOST and not self.has_lines:  # a server may say anything, and all that is told has it
            message = f"{message[:_MOST]} …"
        super().__init__(message, hint)
        self.message = escapes.lines(message) if self.has_lines else escapes.one_line(message)
        self.hint = None if hint is None else escapes.one_line(hint)

    @override
    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    @override
    def __reduce__(self) -> tuple[object, ...]:
        # Errors come back from Spark executors pickled; keyword-only arguments need help.
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[KuvaszError], message: str, hint: str | None) -> KuvaszError:
    return kind(message, hint=hint)


class ConfigError(KuvaszError):
    """The configuration is wrong."""

    exit_code = 2
    has_lines = True


class MapMismatch(ConfigError):
    """An option of a table does not fit the source's columns, which only the source could tell.

    Args:
        message: As for every error.
        hint: As for every error.
        database: The group in the map.
        table: The source table.
        option: The option of the table: `filter` or `set.name`.
    """

    has_lines = False

    def __init__(
        self, message: str, *, hint: str | None = None, database: str = "", table: str = "", option: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.database = database
        self.table = table
        self.option = option


class MapBusy(ConfigError):
    """Another map is just being put into use, or kuvasz starts or stops."""


class CutRefused(KuvaszError):
    """A cut cannot be made now: a table is not where its source is, or it took too long. Nothing is tagged."""


class MapUnwritten(KuvaszError):
    """The map's file cannot be written: nothing is changed."""


class CheckError(KuvaszError):
    """Nothing passed the pre-flight."""

    exit_code = 3
    retry = Retry.HUMAN


class SourceError(KuvaszError):
    """A source cannot be reached or answered with a passing error."""

    is_public = True
    retry = Retry.TIMED
    scope = Scope.SOURCE


class SourceRefused(SourceError):
    """A source lacks a setting or a privilege."""

    exit_code = 3
    retry = Retry.HUMAN


class SourceTooLarge(SourceError):
    """A source has more tables than may be one target, or than may be like the patterns of its entry."""


class SourceLocked(SourceError):
    """Somebody holds a lock on a table, and whatever needs one of its own did not get it in time."""


class SourceSlow(SourceError):
    """What was asked for comes slowly, and was to be waited for only where that keeps nobody else waiting."""


class SlotLost(SourceError):
    """The stream cannot be continued from where the lake stands."""

    exit_code = 5
    retry = Retry.HUMAN


class SourceReplaced(SlotLost):
    """What answers lacks some of what was had of the source: another cluster, an older backup, a late standby."""


class TableError(KuvaszError):
    """One table cannot go on."""

    retry = Retry.HUMAN
    scope = Scope.TABLE


class DecodeError(TableError):
    """A value cannot be held by its column's type, or bytes are not what the protocol says."""


class RowTooLarge(TableError):
    """A row of the stream is larger than the map lets one be; tried again, it is as large."""

    is_public = True


class SchemaError(TableError):
    """Source and lake disagree on columns, types or key."""

    is_public = True


class OptionRefused(SchemaError):
    """An option of the map does not fit its table's columns.

    Args:
        message: As for every error.
        hint: As for every error.
        option: Which option of the table, `filter` or `set.name`.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None, option: str = "") -> None:
        super().__init__(message, hint=hint)
        self.option = option


class ExpressionRefused(OptionRefused):
    """An expression of the map cannot be evaluated over its table's columns."""


class SchemaAwaited(SchemaError):
    """A source table changed, and other sources that fill the same column of the lake have not changed it yet."""


class SchemaHeld(SchemaError):
    """A source table changed, and the map says to wait for a person."""


class LostTrack(SchemaError):
    """Rows that are still to come cannot be taken as they are, and trying again changes nothing."""


class RowsUnlogged(SchemaError):
    """Rows of a table may change without a word in the write-ahead log; when that has ended, something is missing."""


class ColumnsUnclear(SchemaError):
    """Which columns a Relation message means is not proved; tried again, they may be taken as they probably are.

    Args:
        message: As of every error.
        hint: What to do next.
        through: Transactions that committed before this LSN are the ones in doubt.
        likely: The answer that all names and the order of the transactions speak for, as the hint says it; empty:
            there is none.
    """

    def __init__(self, message: str, *, hint: str | None = None, through: int = 0, likely: str = "") -> None:
        super().__init__(message, hint=hint)
        self.through = through
        self.likely = likely


class CopyNeeded(SchemaError):
    """Only another copy of the table gives the rows that the lake has the values they have at the source now."""


class VersionLost(TableError):
    """Rows leave out a large value that did not change, and the lake has no earlier version of them.

    Args:
        message: As for every error.
        hint: As for every error.
        source: Whose rows they are.
    """

    def __init__(self, message: str, *, hint: str | None = None, source: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source


class ForeignChange(TableError):
    """Someone else changed a table of ours in the lake in a way that cannot be followed."""

    is_public = True


class ChangesLost(TableError):
    """Changes of a table are lost for good, and a person has to say how it goes on."""

    is_public = True


class OtherRule(TableError):
    """The map makes other rows of a table than those that are there, and a person has to say how it goes on."""


class TableTaken(TableError):
    """A table of the lake is another deployment's, which hears the same log."""

    exit_code = 2
    is_public = True


class TableGone(TableError):
    """Someone dropped a table of ours from the lake."""

    is_public = True


class LakeRewound(TableError):
    """Someone set a table of ours back in the lake: rows are missing that its positions say are there."""

    is_public = True


class ParkedLost(TableError):
    """Changes of a table were parked, and what they were parked in is gone."""

    is_public = True


class EarlierError(TableError):
    """A table could not go on before this start; of why, the words are left until its first look."""


class LakeError(KuvaszError):
    """Catalog or storage failed and nothing was committed."""

    retry = Retry.TIMED
    scope = Scope.TABLE


class LateCommit(LakeError):
    """The table is further than this process brought it: a commit of an earlier one landed after all."""


class TableStuck(LakeError):
    """Catalog or storage refuse what is done to one table, or do not answer it, while others go on."""

    is_public = True


class JobFailed(LakeError):
    """A job of Spark ended without a result; whether for want of executors or for some of its rows nobody says."""


class OutcomeUnknown(LakeError):
    """A commit was sent and its answer lost."""


class StateError(KuvaszError):
    """The state folder cannot be read or written."""

    retry = Retry.HUMAN


class StateTaken(StateError):
    """Another process owns the state folder; nothing in it was read or changed."""

    exit_code = 2


class InternalError(KuvaszError):
    """Our own code broke a promise.

    Args:
        message: As for every error.
        hint: As for every error; by default one that serves for all.
    """

    HINT: ClassVar[str] = "a defect of kuvasz: report it with its log; `kuvasz resync TABLE` copies a table anew"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or self.HINT)


def place_of(source: str = "", table: object = "", column: str = "") -> str:
    """Return where something is wrong, as messages begin with it: ``source eu, table shop.items, column price``.

    What is empty is left out. A name takes one line whatever is in it.
    """
    parts = ("source", source), ("table", table), ("column", column)
    return ", ".join(f"{kind} {escapes.one_line(str(name))}" for kind, name in parts if name)


def resync_of(table: object) -> str:
    """Return the command that copies a table again, as a shell takes it."""
    return _command("resync", table)


def rewound(table: str, source: str, why: str) -> LakeRewound:
    """Return the error of a table that someone set back in the lake."""
    message = f"{place_of(source, table)}: someone set the table back in the lake: {why}"
    hint = f"copy it again: {resync_of(table)}; or `on_lake_rewound: repair` compares and mends it"
    return LakeRewound(message, hint=hint)


def retry_of(table: object) -> str:
    """Return the command that has a table tried again, as a shell takes it."""
    return _command("retry", table)


def verify_of(table: object) -> str:
    """Return the command that compares a table with its sources, as a shell takes it."""
    return _command("verify", table)


def resume_of(table: object) -> str:
    """Return the command that lets a paused table follow again, as a shell takes it."""
    return _command("resume", table)


def mistake_at(source: str, error: BaseException) -> SourceError:
    """Return what a mistake of ours at a source, or an answer that nobody thought of, is told as."""
    message = f"{place_of(source)}: {type(error).__name__}: {str(error)[:200]}"
    return SourceError(message, hint="this is a mistake in kuvasz: report it with the log; it is tried again")


def start_over(source: str) -> str:
    """Return what to do when a source cannot go on from where the lake stands."""
    command = f"kuvasz resync --sid {shlex.quote(source)}"
    return f"copy the source again: {command}, or `on_slot_lost: repair` or `resync`"


def another_cluster(source: str) -> str:
    """Return what to do when another cluster answers than the one whose rows the lake has."""
    upgraded = "if pg_upgrade has made it of that one, a start goes on with it, or says why that is not proved"
    return f"check the url; {upgraded}; if the cluster was replaced: {start_over(source)}"


def unreadable(file: object, error: OSError) -> StateError:
    """Return the error of a file of the state that is there, and cannot be read now."""
    message = f"{file} cannot be read: {(error.strerror or str(error)).lower()}"
    return StateError(message, hint="see that the user who runs kuvasz may read it")


def mend_of(error: KuvaszError) -> str:
    """Return the hint of an error as who looks once takes it: nothing is tried again; empty if there is none."""
    return "; ".join(part for part in (error.hint or "").split("; ") if "tried again" not in part)


def _command(verb: str, table: object) -> str:
    return f"kuvasz {verb} --table {_quoted(str(table))}"


def _quoted(name: str) -> str:
    """Return a name as one word of a shell, on one line: ``$'…'`` where it has characters that do not print."""
    if name.isprintable():
        return shlex.quote(name)
    return "$'{}'".format(escapes.one_line(name.replace("\\", "\\\\").replace("'", "\\'")))


def first_of(group: BaseExceptionGroup[BaseException]) -> KuvaszError | None:
    """Return the first error of ours in a group, however deep; None if it holds none."""
    for error in group.exceptions:
        if isinstance(error, KuvaszError):
            return error
        if isinstance(error, BaseExceptionGroup) and (inner := first_of(error)) is not None:
            return inner
    return None


def ours_in(caught: BaseException, *telling: type[KuvaszError]) -> KuvaszError | None:
    """Return the error of ours that says what a failure is; None if anything else is in it.

    Args:
        caught: An error, or a group of those that came together.
        telling: Kinds that say more than the others, the most telling first.
    """
    group = caught if isinstance(caught, BaseExceptionGroup) else BaseExceptionGroup("", [caught])
    ours, others = group.split(KuvaszError)
    if ours is None or others is not None:
        return None
    found = (ours.subgroup(kind) for kind in telling)
    return first_of(next((one for one in found if one is not None), ours))
