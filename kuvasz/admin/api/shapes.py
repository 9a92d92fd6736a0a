"""What the answers of the HTTP API hold, as JSON Schemas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kuvasz.admin.entries.entry_shapes import ENTRY_SHAPES
from kuvasz.errors import Retry
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Schema

_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer"}
_NUMBER: Final[Schema] = {"type": "number"}
_SWITCH: Final[Schema] = {"type": "boolean"}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "integer"}}
_LSN: Final[Schema] = {"type": "string", "pattern": "^[0-9A-F]+/[0-9A-F]+$"}


def ref(name: str) -> Schema:
    """Return a reference to a shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(items: Schema) -> Schema:
    """Return what a list of something looks like."""
    return {"type": "array", "items": items}


def _or_null(schema: Schema, about: str = "") -> Schema:
    """Return the shape of what may be null."""
    found: Schema = (
        {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else schema | {"type": [schema["type"], "null"]}
    )
    return found | ({"description": about} if about else {})


def _told(schema: Schema, about: str) -> Schema:
    return schema | {"description": about}


def _object(about: str, optional: Mapping[str, Schema] | None = None, /, **fields: Schema) -> Schema:
    """Return the shape of an object all of whose fields are there, but for those that are optional."""
    return {
        "type": "object", "description": about, "properties": fields | dict(optional or {}), "required": list(fields)
    }  # fmt: skip


_FILES: Final[dict[str, Schema]] = {
    "target": _TEXT,
    "files": _told(_WHOLE, "Live data files."),
    "bytes": _told(_WHOLE, "Bytes of them."),
    "rows": _told(_WHOLE, "Rows in them, dead ones included."),
    "dead_rows": _WHOLE,
    "delete_files": _told(_WHOLE, "Data files that a reader has to read deletes for."),
    "snapshots": _or_null(_WHOLE, "Null while it is not known."),
    "rewrites": _told(_WHOLE, "Commits since the start that only exchanged files."),
    "changed_bytes": _told(_WHOLE, "Bytes written since the start for changes and copies."),
    "rewritten_bytes": _told(_WHOLE, "Bytes written since the start by maintenance."),
    "error": _or_null(_TEXT, "What went wrong at the last look."),
}

#: Name -> shape.
SHAPES: Final[dict[str, Schema]] = {
    "Error": _object(
        "Why a request was not done.",
        code=_told(
            _TEXT,
            "What programs tell it by: invalid_request, invalid_id, not_allowed, not_found, conflict, map_busy"
            " (ask again: the map before is still being put into use), …",
        ),
        error=_TEXT,
        hint=_or_null(_TEXT, "What to do."),
    ),
    "Verdict": _object("Whether all is well.", {"reasons": listed(_TEXT)}, ok=_SWITCH),
    "Status": _object(
        "Everything there is to know, at one moment.",
        version=_TEXT,
        phase=_told(_TEXT, "starting, running or stopping; erasing while rows are erased."),
        started_at=_INSTANT,
        at=_told(_INSTANT, "The moment."),
        waiting_bytes=_told(_WHOLE, "Raw changes that wait in memory."),
        memory_bytes=_told(_WHOLE, "The most that may wait."),
        commit_conflicts=_told(_WHOLE, "Commits that met somebody else's."),
        live=_told(_SWITCH, "What /livez says."),
        ready=_told(_SWITCH, "What /readyz says."),
        sources=listed(ref("Source")),
        released=listed(ref("Released")),
        log=_or_null(ref("StagedLog"), "Null without `cluster.log`."),
        maintenance=listed(ref("Files")),
    ),
    "Erasure": _object(
        "An erasure that was asked for.",
        {"receipt": {"type": "object", "description": "What was erased, and what a scan of all that is left found."}},
        id=_TEXT,
        state=_told({"type": "string", "enum": ["waiting", "running", "done", "failed"]}, "How far it is."),
        by=_told(_TEXT, "Who asked."),
        asked_at=_INSTANT,
        ended_at=_or_null(_INSTANT),
        sid=_or_null(_TEXT),
        database=_or_null(_TEXT),
        table=_or_null(_TEXT, "Of the row, if it is one row that goes; its key is not told."),
        with_tags=_SWITCH,
        with_unclear=_SWITCH,
        error=_or_null(_TEXT, "Why it was not done. Asked for again, it goes on where it was."),
        hint=_or_null(_TEXT),
    ),
    "StagedLog": _object(
        "The staged log.",
        waiting_bytes=_told(_WHOLE, "In memory, and not staged yet."),
        is_full=_told(_SWITCH, "Whether so much waits that no source is read."),
        objects=_told(_WHOLE, "Those that the lake does not have all of yet."),
        staged_at=_or_null(_INSTANT, "When something was staged last."),
        error=_or_null(_TEXT, "Why nothing can be staged just now."),
        groups=_told(listed(ref("LogGroup")), "Other deployments that hear what is staged (`cluster.group`)."),
    ),
    "LogGroup": _object(
        "A group of the staged log, with a lake of its own.",
        group=_TEXT,
        objects=_told(_WHOLE, "Those that its lake does not have all of yet."),
        behind_seconds=_or_null(_NUMBER, "Since the first of them was staged; null if there is none."),
        is_applied=_told(_SWITCH, "Whether a process of it runs."),
    ),
    "Source": _object(
        "A source: one database.",
        source=_TEXT,
        state=_TEXT,
        error=_or_null(_TEXT),
        retry_at=_or_null(_INSTANT),
        received_lsn=_LSN,
        durable_lsn=_LSN,
        confirmed_lsn=_LSN,
        staged_lsn=_or_null(_LSN, "Before which all of it is staged; null without `cluster.log`."),
        rows=_told(_WHOLE, "Changes since the start."),
        lag_seconds=_or_null(_NUMBER, "By the clocks of two machines."),
        lag_bytes=_or_null(_WHOLE),
        fresh_at=_or_null(_INSTANT),
        last_message_at=_or_null(_INSTANT),
        is_paused=_told(_SWITCH, "Whether it is not read, because too much waits in memory."),
        slot=_or_null(ref("Slot"), "Null while it was not looked at."),
        tables=listed(ref("Table")),
    ),
    "Slot": _object(
        "The slot of a source, as its server shows it.",
        retained_bytes=_told(_WHOLE, "WAL that it holds."),
        safe_bytes=_or_null(_WHOLE, "WAL until it is lost; null: without end."),
        status=_told(_TEXT, "reserved, extended, unreserved or lost."),
        wal_bytes_per_second=_or_null(_NUMBER),
        seconds_left=_or_null(_NUMBER, "Until it is lost at this rate."),
    ),
    "Released": _object("A source that left the map, whose slot holds WAL.", source=_TEXT, retained_bytes=_WHOLE),
    "Table": _object(
        "One table of one source.",
        table=_told(_TEXT, "Its name at the source."),
        mapped_as=_or_null(_TEXT, "Its name in the map, if it is another one."),
        target=_told(_TEXT, "Its table in the lake."),
        tenant=_or_null(_TEXT, "Whose schema it is in, where `schemas` takes it in."),
        state={"type": "string", "enum": [state.value for state in State]},
        since=_INSTANT,
        error=_or_null(ref("TableError")),
        retry_at=_or_null(_INSTANT),
        is_resync_due=_SWITCH,
        why_copy=_or_null(_TEXT, "Why it is copied again by itself."),
        waits_for=_or_null(_TEXT, "Whose transactions have to end before it can be copied."),
        rows=_told(_WHOLE, "Changes since the start."),
        copied_rows=_WHOLE,
        rejected_rows=_told(_WHOLE, "That did not fit and are in the table `rejects`, since the start."),
        copy_progress=_or_null(_NUMBER, "0 to 1."),
        copy_rows_per_second=_or_null(_NUMBER, "While it is copied, on the average of its copy."),
        copy_resumes_at=_or_null(_INSTANT, "When the hours begin that its copy waits for (`copy.hours`)."),
        copy_seconds_left=_or_null(_NUMBER, "Until all of it is read, at that speed."),
        commits=_WHOLE,
        last_commit_seconds=_or_null(_NUMBER),
        newest_change_at=_or_null(_INSTANT),
        durable_lsn=_or_null(_LSN, "All that committed before it is in the table."),
        valid_through=_or_null(_INSTANT, "All that committed up to it, by the source's clock, is in the table."),
        parked=_or_null(ref("Parked")),
        verified=_or_null(ref("Comparison"), "What comparisons on a schedule (`verify.every`) found last."),
    ),
    "Comparison": _object(
        "A table compared with its source, row by row.",
        at=_or_null(_INSTANT, "Of the last comparison that came to an end."),
        lsn=_or_null(_LSN, "Of the source, at which the two were compared."),
        rows=_told(_WHOLE, "That the source had."),
        differences=_told(_WHOLE, "Keys that differed."),
        left=_told(_WHOLE, "Of them, those that differ still."),
        error=_or_null(_TEXT, "Why the last attempt came to no end; one that may quote a row is shown with a token."),
    ),
    "TableError": _object(
        "Why a table stands still.",
        kind=_told(_TEXT, "See docs/errors.md."),
        message=_told(_TEXT, "One that may quote a row is shown with a token alone."),
        hint=_or_null(_TEXT),
        retry={"type": "string", "enum": [retry.value for retry in Retry]},
    ),
    "Parked": _object(
        "Changes of a table that wait on local disk.",
        bytes=_WHOLE,
        since=_INSTANT,
        oldest_lsn=_or_null(_LSN),
        is_full=_told(_SWITCH, "Whether the source keeps what comes."),
    ),
    "Files": _object(
        "The files of a table, as maintenance last saw them.",
        **_FILES,
        average_bytes=_WHOLE,
        dead_share=_told(_NUMBER, "0 to 1."),
        last_at=_or_null(_INSTANT, "When files were last written anew."),
        next_at=_or_null(_INSTANT, "When it is looked at next."),
    ),
    "Support": _object(
        "What a running kuvasz tells of itself for a bug report.",
        pid=_told(_WHOLE, "Its process."),
        status=_or_null(ref("Status"), "Null where it was not there within 5 s."),
        threads=listed(ref("Thread")),
        tasks=listed(ref("Task")),
        events=_told(listed({"type": "object"}), "The oldest first; see docs/events.md."),
    ),
    "Thread": _object("Where a thread is.", thread=_told(_TEXT, "Its name."), stack=listed(_TEXT)),
    "Task": _object(
        "Where a task of the event loop is.",
        task=_told(_TEXT, "Its name."),
        stack=listed(_TEXT),
        waits_for=_or_null(_TEXT, "The kind of what it waits for."),
    ),
    "Done": _object(
        "What was begun.",
        verb=_TEXT,
        tables=listed(ref("DoneTable")),
    ),
    "DoneTable": _object("A table of a source.", source=_TEXT, target=_TEXT),
    "Cut": _object(
        "A cut that was made.",
        name=_TEXT,
        tag=_told(_TEXT, "The name of the tags."),
        lsns={
            "type": "object",
            "description": "Source -> LSN before which its tables show everything, and nothing else.",
        },
        snapshots={"type": "object", "description": "Table -> the snapshot that is tagged; null: it is empty."},
    ),
    "Maintained": _object(
        "What the tables look like now.",
        tables=listed({"anyOf": [ref("MaintainedTable"), ref("UnmaintainedTable")]}),
    ),
    "MaintainedTable": _object(
        "A table that was looked after.",
        **_FILES,
        last_at=_or_null(_NUMBER, "Unix seconds."),
        next_at=_or_null(_NUMBER, "Unix seconds."),
    ),
    "UnmaintainedTable": _object("A table that could not be looked after.", target=_TEXT, error=_TEXT),
    "PublishedTables": _object(
        "What main shows.", tables=listed({"anyOf": [ref("PublishedTable"), ref("UnpublishedTable")]})
    ),
    "PublishedTable": _object(
        "A table whose main shows its branch.",
        target=_TEXT,
        branch=_TEXT,
        before=_or_null(_WHOLE, "The snapshot that main showed; null: none."),
        after=_or_null(_WHOLE, "The snapshot that it shows."),
    ),
    "UnpublishedTable": _object("A table that cannot be published.", target=_TEXT, error=_TEXT, hint=_or_null(_TEXT)),
    "Verified": _object(
        "What a comparison found.",
        exit_code=_told(_WHOLE, "0: equal, or all mended; 4: keys differ; else: something could not be compared."),
        reports=_told(listed({"type": "object"}), "One for each table of each source."),
    ),
    "MapDifference": _object(
        "What a map has otherwise than the one that ran.",
        verb={"enum": ["reload", "import"]},
        added=_told(listed(_TEXT), "Sources."),
        removed=_told(listed(_TEXT), "Sources."),
        changed=listed(ref("SourceDifference")),
        needs_restart=_told(listed(_TEXT), "Options that count from the next start on."),
    ),
    "SourceDifference": _object(
        "A source that both maps have.",
        source=_TEXT,
        options=_told(listed(_TEXT), "Options of the source that differ."),
        added=_told(listed(_TEXT), "Tables."),
        removed=_told(listed(_TEXT), "Tables."),
        changed=_told(listed(_TEXT), "Tables."),
    ),
    "FleetSource": _object(
        "A source of the map, or one that left it and whose slot holds WAL.",
        {"table_list": _told(listed({"type": "object"}), "Only where it is asked for alone: as in `/status`.")},
        source=_TEXT,
        database=_or_null(_TEXT, "Its group; null of one that left."),
        sid=_or_null(_TEXT),
        url=_or_null(_TEXT, "`***` stands for its password."),
        replication_url=_or_null(_TEXT, "Who replicates it, if that is another role; the same."),
        schemas=_or_null(_TEXT, "What a schema has to be called to be a tenant's."),
        slot=_told(_TEXT, "What its slot and publication are called."),
        state=_or_null(_TEXT, "As in `/status`; null if it does not run."),
        error=_or_null(_TEXT),
        lag_seconds=_or_null(_NUMBER),
        retained_bytes=_or_null(_WHOLE, "WAL that its slot holds."),
        tables=_told(_WHOLE, "How many."),
        states=_told(_COUNTS, "State -> its tables."),
        tenants=listed(ref("Tenant")),
    ),
    "Tenant": _object("A tenant, by its schema.", sid=_TEXT, tables=_WHOLE, states=_COUNTS),
    **ENTRY_SHAPES,
}

__all__ = ["SHAPES", "listed", "ref"]
