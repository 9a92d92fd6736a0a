"""What events tell beside their message: each fact has one name, one meaning, and one kind of value."""

from __future__ import annotations

from typing import Final, NamedTuple


class Fact(NamedTuple):
    """One fact that a line of the log may have."""

    kind: str  #: of JSON's value; several with `|` between them
    meaning: str


_TEXT, _COUNT, _NUMBER, _LIST, _MAPPING, _YES_NO = "string", "integer", "number", "array", "object", "boolean"

#: By name, as they stand in a line of JSON.
FACTS: Final[dict[str, Fact]] = {
    name: Fact(kind, meaning)
    for kind, facts in {
        _TEXT: {
            "branch": "of a table of the lake",
            "by": "who asked for it: the name of a token, `local` for kuvasz's own, `SIGHUP`, `map.watch`",
            "before": "the name that it had",
            "certificate": "the file of it",
            "change": "what changed, in words",
            "client": "the address that a request came from",
            "cut": "its name",
            "error": "what is wrong, with its place; a second line has the hint. It may quote a value of a row",
            "file": "that it is about",
            "group": "of the map: an entry of `databases`",
            "folder": "that it is about",
            "found": "what was found, in words",
            "hint": "what to do about it",
            "holder": "the process that replicates",
            "hours": "in which large tables are copied, as in the map",
            "into": "where it is now",
            "line": "what Spark, Java or a worker of Spark printed; it may quote a value of a row",
            "log_group": "of the staged log: another deployment, with a lake of its own",
            "lsn": "of the source, as `16/B374D848`: everything before it is meant",
            "mapped": "the name that the map has",
            "master": "Spark's",
            "node": "this process",
            "now": "the name that it has now",
            "partition": "a source table that is one",
            "pattern": "an entry of the map that tables are like",
            "person": "who had kuvasz's own verb ask, as that says",
            "place": "a folder in a store",
            "reason": "the same as `error`, where it was not kuvasz that failed",
            "result": "of a request: done, refused, failed",
            "server": "where it is, `user@host:port/database`",
            "since_lsn": "of the source: what comes from it on is meant",
            "slot": "its name",
            "slowest": "of some sources the one with the largest lag",
            "source": "its name: that of its database in the map, `_`, its sid",
            "table": "a table of the lake; of what happened at the source, the source's table",
            "target": "a table of the lake, beside the source's; of a request, what it is to change",
            "url": "where kuvasz is reached from this machine",
            "webhook": "its name, or the host of its url",
            "what": "what was done, in words; of a request its method and path",
        },
        _COUNT: {
            "bytes": "raw ones of changes; of files, their size",
            "carried": "rows that changed while files were written anew",
            "changed_bytes": "written by commits since the start",
            "commits": "snapshots of tables",
            "deletes": "rows that were deleted at the source",
            "done": "parts of a table that are copied",
            "entries": "of what a webhook was to be told, lost",
            "epoch": "counts the connections of a stream",
            "files": "that it is about",
            "files_after": "data files afterwards",
            "files_before": "data files before",
            "inserts": "rows that were inserted at the source",
            "keys": "rows that were mended, or are read once more",
            "left": "rows that differ and were not mended",
            "mended": "rows that were mended",
            "objects": "of the staged log",
            "pid": "of a session at the source",
            "rejected": "rows that are in the table of rejects",
            "rewritten_bytes": "written by maintenance since the start",
            "rows": "of changes: messages for rows, as the source sent them; of copies and files, rows",
            "snapshot": "Iceberg's id of it",
            "snapshot_before": "Iceberg's id of the one that was shown before",
            "source_commit_us": "when its newest transaction committed, µs since 2000 UTC by the source's clock",
            "status": "of the answer over HTTP",
            "total": "parts of a table that is being copied",
            "tries": "snapshots that were taken until one could be used",
            "undecided": "rows that changed all the time while they were compared",
            "untold": "requests before this one that were not told",
            "updates": "rows that were updated at the source",
            "worker": "its number",
        },
        _NUMBER: {
            "commit_seconds": "for which the stream may have waited for a commit of maintenance",
            "lag_s": "how old the newest change of a commit was at most, in seconds, when it was to be seen",
            "seconds": "that it took; of `changes`, since the last summary",
            "wait_s": "seconds until it is tried again",
            "waited_s": "seconds that it took so far",
        },
        _YES_NO: {
            "is_applied": "whether a process of it runs",
            "resync": "whether it is copied again",
            "was_killed": "whether the process before did not end by itself",
        },
        _LIST: {
            "added": "sources that the map has now",
            "blockers": "transactions that a slot waits for",
            "changed": "sources of which the map has something otherwise, each with what",
            "groups": "of the map: entries of `databases`",
            "needs_restart": "options that count from the next start on",
            "partition_by": "of a table's layout, as in the map",
            "removed": "sources that the map has no more",
            "sort_by": "of a table's layout, as in the map",
            "statements": "SQL that was run at the source",
        },
        _MAPPING: {
            "differences": "how many rows differ, by kind",
            "lsns": "of each source",
            "positions": "the LSN of each source in the table",
            "snapshots": "Iceberg's id of each table",
        },
        "array|integer": {"tables": "how many, or which"},
        "array|integer|object": {"sources": "how many, which, or what is the matter with each"},
        "number|string": {"since": "a time"},
    }.items()
    for name, meaning in facts.items()
}

__all__ = ["FACTS", "Fact"]
