"""``kuvasz trace``: the life of a row in the lake, snapshot by snapshot, and what its source has of it now.

Reads the lake alone, without Spark and without a running kuvasz; the source only where that is asked for.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.admin.commands import Selection
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, LakeError, place_of
from kuvasz.lake.about.commits import kind_of
from kuvasz.lake.definition.lineage import lineage_of
from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.files.data_file import read_rows
from kuvasz.lake.format import member, schema, source_positions, table_identity
from kuvasz.lake.format.schema import SID
from kuvasz.model import POSTGRES_EPOCH_US, TableType
from kuvasz.state.tables import TableState
from kuvasz.verbs import moments, text
from kuvasz.verbs.lake import row_key, row_life
from kuvasz.verbs.lake.row_life import LakeRow, RowEvent, RowEventKind
from kuvasz.verbs.lake.row_places import Place, RowPlaces
from kuvasz.verbs.lakeview import LakeView, head_of, seen, snapshots_of

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from kuvasz.config.model import Config
    from kuvasz.config.sources import MappedTarget, TargetFeed
    from kuvasz.lake.definition.lineage import Lineage, Shown
    from kuvasz.model import SourcePosition
    from kuvasz.verbs.lake.row_at_source import RowAnswer

#: How often a table is looked at anew whose files went while it was read.
_LOOKS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """What a person asked for."""

    key: tuple[str, ...]
    sid: str | None  #: the sid, or the name of the source
    at_source: bool


def tables(
    config: Config, *, table: str, key: Sequence[str], sid: str | None = None, at_source: bool = False
) -> list[dict[str, Any]]:
    """Return the life of a row in each target that is meant, ready for JSON.

    Args:
        config: The whole configuration.
        table: As a source or the lake calls it.
        key: As for `row_key.parse`.
        sid: The sid, or the name of the source; None: rows of any.
        at_source: Ask the sources, too.

    Raises:
        ConfigError: The map has no such table, or the key is none of it.
        LakeError: The catalog or the store does not answer.
    """
    asked = RowRequest(key=tuple(key), sid=sid, at_source=at_source)
    wanted = [(target, feeds) for target in config_sources.targets(config)
              if (feeds := [feed for feed in target.feeds if _is_meant(feed, table, sid)])]  # fmt: skip
    if not wanted:
        of = "" if sid is None else f" of source {sid!r}"
        raise ConfigError(f"the map has no table {table!r}{of}", hint="`kuvasz plan` lists the tables")
    view = LakeView(config)
    return [_traced(view, target, feeds, asked) for target, feeds in wanted]


def _is_meant(feed: TargetFeed, table: str, sid: str | None) -> bool:
    state = TableState(target=feed.spec.identifier, source=feed.source.name, table=str(feed.spec.table))
    is_source = feed.spec.schemas is not None or Selection(table=None, sid=sid).has(state, feed.source.sid)
    return is_source and Selection(table=table, sid=None).has(state, None)


def _traced(view: LakeView, target: MappedTarget, feeds: Sequence[TargetFeed], asked: RowRequest) -> dict[str, Any]:
    """Look at one target, anew where maintenance removed files meanwhile."""
    gone: OSError | None = None
    for _ in range(_LOOKS):
        found = view.load(target.identifier)
        if found is None:
            return {"target": target.identifier, "why_not": "there is no such table in the lake"}
        try:
            return _of_table(found, target, feeds, asked)
        except FileNotFoundError as error:
            gone = error
    message = f"{place_of(table=target.identifier)}: its files went while they were read: {gone}"
    raise LakeError(message, hint="trace the row again; keep snapshots longer: `maintenance.snapshot_age`") from gone


def _of_table(found: Table, target: MappedTarget, feeds: Sequence[TargetFeed], asked: RowRequest) -> dict[str, Any]:
    columns = schema.parse(found.schema().model_dump_json())
    by = tuple(json.loads(found.properties.get(table_identity.KEY_PROPERTY, "[]")))
    sid = _sid(target, feeds, asked.sid)
    padded = row_key.widths(seen(found, target.identifier).known.values(), columns)
    key = row_key.parse(asked.key, sid, by, (columns, found.schema()), target.identifier, padded)
    lineage = lineage_of(snapshots_of(found, target.identifier), head_of(found),
                         source_positions.parse(found.properties, target.identifier))  # fmt: skip
    places = RowPlaces(found, key)
    chain = [one for step in lineage.steps if (one := found.snapshot_by_id(step.snapshot.id)) is not None]
    there = _rows(found, columns, places.of(chain), has_sid=target.has_sid)
    kind = TableType(found.properties.get(table_identity.TYPE_PROPERTY, TableType.CLONE))
    happened = row_life.lives(there, kind, has_key=bool(by), is_whole=lineage.is_whole)
    told = _EventReport(lineage, chain, {feed.source.name: feed.source.sid for feed in target.feeds})
    now = there[-1] if there else ()
    rows = [
        {"sid": whose[0], "member": whose[1], "events": [told.event(one) for one in events],
         "now": [_row_json(row) for row in now if row.whose == whose]}
        for whose, events in row_life.by_row(happened).items()
    ]  # fmt: skip
    at_source = _at_source(feeds, key.texts, asked.sid) if asked.at_source else None
    return {
        "target": target.identifier, "type": str(kind), "key": dict(key.texts), "is_whole": lineage.is_whole,
        "oldest": moments.text_of(chain[0].timestamp_ms / 1e3) if chain else None, "snapshots": len(chain),
        "files_read": places.files_read, "files_known": places.files_known, "rows": rows,
        "at_source": None if at_source is None else [one.as_json() for one in at_source],
    }  # fmt: skip


def _at_source(feeds: Sequence[TargetFeed], key: Mapping[str, str], sid: str | None) -> list[RowAnswer]:
    from kuvasz.verbs.lake import row_at_source  # it loads psycopg, which the lake needs not

    return row_at_source.look(feeds, key, sid)


def _sid(target: MappedTarget, feeds: Sequence[TargetFeed], asked: str | None) -> str | None:
    """Return the sid that the rows have which are meant; None: there is none, or any will do."""
    if not target.has_sid or asked is None:
        return None
    named = next((feed.source for feed in feeds if feed.source.name == asked and feed.spec.schemas is None), None)
    is_all = named is None and any(feed.source.name == asked for feed in feeds)
    return None if is_all else asked if named is None else named.sid


def _rows(
    table: Table, columns: schema.LakeSchema, places: Sequence[Sequence[Place]], *, has_sid: bool
) -> list[list[LakeRow]]:
    """Return the rows that lie at some places, each file read once."""
    positions: dict[str, set[int]] = {}
    for place in (place for step in places for place in step):
        positions.setdefault(place.file, set()).add(place.position)
    known: dict[Place, LakeRow] = {}
    for path, some in positions.items():
        numbers = sorted(some)
        found = read_rows(table.io.properties, path, numbers, columns.arrow()).to_pylist()
        for number, values in zip(numbers, found, strict=True):
            place = Place(file=path, position=number)
            sid = values.get(SID) if has_sid else None
            known[place] = LakeRow(place=place, sid=sid, member=member.in_path(path), values=values)
    return [[known[place] for place in step] for step in places]


class _EventReport:
    """What is told of what happened.

    Args:
        lineage: The table's.
        chain: Its snapshots.
        sids: Source -> sid.
    """

    def __init__(self, lineage: Lineage, chain: Sequence[Snapshot], sids: Mapping[str, str | None]) -> None:
        self._lineage = lineage
        self._chain = chain
        self._sids = sids

    def event(self, one: RowEvent) -> dict[str, Any]:
        """Return what happened ready for JSON."""
        snapshot, step = self._chain[one.step], self._lineage.steps[one.step]
        summary = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
        origin = snapshot_origin.parse(summary)
        return {
            "what": str(one.what),
            "snapshot_id": snapshot.snapshot_id,
            "snapshot_at": moments.text_of(snapshot.timestamp_ms / 1e3),
            "by": kind_of(summary, origin),
            "sources": [
                self._source(name, one.step, step, origin) for name in step.sources if self._is_of(name, one)
            ],
            **_row_json(one.row),
            "before": None if one.before is None else _row_json(one.before),
            "changed": list(one.changed),
        }

    def _is_of(self, name: str, one: RowEvent) -> bool:
        """Whether a row is of a source, or a member of it, that its snapshot moved, or shows if it is the first."""
        if one.what is not RowEventKind.THERE and name not in self._lineage.steps[one.step].snapshot.positions:
            return False
        tenant = names.tenant_of(names.member_of(name))
        sid = self._sids.get(names.source_of(name)) if tenant is None else tenant
        return (one.row.sid is None or sid == one.row.sid) and one.row.member in {None, member.of(name)}

    def _source(
        self, name: str, number: int, step: Shown, origin: snapshot_origin.SnapshotOrigin | None
    ) -> dict[str, Any]:
        """Return between which LSNs of a source a snapshot lies."""
        earlier = self._lineage.steps[number - 1].sources.get(name) if number else None
        after = None if earlier is None else earlier.position
        here = step.sources[name].position
        return {
            "source": name,
            "after": None if after is None else lsn.render(after.lsn),
            "before": None if here is None else lsn.render(here.lsn),
            "newest": None if here is None else _transaction(here),
            "is_only": here is not None and _is_only(here, step, origin),
        }


def _transaction(at: SourcePosition) -> dict[str, Any] | None:
    """Return the newest transaction in a snapshot; None of a copy."""
    if not at.commit_lsn:
        return None
    return {
        "lsn": lsn.render(at.commit_lsn), "xid": at.xid or None,
        "committed": moments.text_of((at.commit_us + POSTGRES_EPOCH_US) / 1e6) if at.commit_us else None,
    }  # fmt: skip


def _is_only(at: SourcePosition, step: Shown, origin: snapshot_origin.SnapshotOrigin | None) -> bool:
    """Whether a snapshot is known to have one transaction alone: all changes that were counted are its."""
    if origin is None or origin.by != snapshot_origin.STREAM or len(step.snapshot.positions) != 1:
        return False
    return at.rows > 0 and sum(origin.operations) == at.rows


def _row_json(row: LakeRow) -> dict[str, Any]:
    values = {name: _plain(value) for name, value in row.values.items() if name != SID or row.sid is None}
    return {"file": row.place.file, "position": row.place.position, "values": values}


def _plain(value: Any) -> Any:  # noqa: ANN401 (a cell)
    """Return a value as JSON has it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes():
            return f"\\x{value.hex()}"
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {str(name): _plain(one) for name, one in value.items()}
    return str(value)


# What is told


def exit_code(found: Sequence[Mapping[str, Any]]) -> int:
    """Return 0 if the lake has, or had, such a row, else 1."""
    return int(not any(one.get("rows") for one in found))


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what was found for people."""
    parts: list[str] = []
    for one in found:
        parts += [] if not parts else [""]
        parts += _table_lines(one)
    return text.lines(parts)


def _table_lines(one: Mapping[str, Any]) -> list[str]:
    place = place_of(table=one["target"])
    if "why_not" in one:
        return [f"{place}: {one['why_not']}", "hint: `kuvasz plan` says why"]
    key = ", ".join(f"{name}={value}" for name, value in one["key"].items())
    since = "from its first one on" if one["is_whole"] else f"since {one['oldest']}; earlier ones are gone"
    lines = [f"{place} ({one['type']}), {key}: {one['snapshots']} snapshots, {since}"]
    for row in one["rows"]:
        whose = [f"sid {row['sid']}"] if row["sid"] is not None else []
        whose += [f"member {row['member']}"] if row["member"] is not None else []
        lines += [f"  {', '.join(whose)}"] if whose else []
        lines += [f"    {line}" for event in row["events"] for line in _event_lines(event)]
        lines += [f"    now: {_values(now['values'])}" for now in row["now"]] or ["    now: no such row"]
    if not one["rows"]:
        lines.append("  no snapshot has such a row")
    return lines + [f"  {line}" for at in one["at_source"] or () for line in _source_lines(at)]


def _event_lines(event: Mapping[str, Any]) -> list[str]:
    lines = [f"{event['what']:<7} {event['snapshot_at']}  snapshot {event['snapshot_id']}, by {event['by']}"]
    lines += [f"  {_source_words(one)}" for one in event["sources"]]
    if event["what"] == RowEventKind.CHANGED:
        before, after = event["before"]["values"], event["values"]
        lines += [f"  {name}: {_value(before.get(name))} -> {_value(after.get(name))}" for name in event["changed"]]
    elif event["what"] != RowEventKind.MOVED:
        lines.append(f"  {_values(event['values'])}")
    return [*lines, f"  row {event['position']} of {event['file']}"]


def _source_words(one: Mapping[str, Any]) -> str:
    words = f"{one['source']}: "
    words += "" if one["after"] is None else f"from {one['after']} on, "
    words += "of an LSN that nobody knows any more" if one["before"] is None else f"before {one['before']}"
    newest = one["newest"]
    if newest is None:
        return words
    which = "transaction" if one["is_only"] else "newest transaction"
    return f"{words}; {which} {newest['xid'] or '?'} at {newest['lsn']}, committed {newest['committed'] or '?'}"


def _source_lines(at: Mapping[str, Any]) -> list[str]:
    place = f"source {at['source']} now, table {at['table']}"
    if at["why_not"] is not None:
        return [f"{place}: {at['why_not']}", *([f"  hint: {at['hint']}"] if at["hint"] else [])]
    hidden = f" (not shown: {', '.join(at['hidden'])})" if at["hidden"] else ""
    return [f"{place}: {_values(row)}{hidden}" for row in at["rows"]] or [f"{place}: no such row"]


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:  # noqa: ANN401 (JSON)
    return json.dumps(value, ensure_ascii=False)


__all__ = ["exit_code", "render", "tables"]
