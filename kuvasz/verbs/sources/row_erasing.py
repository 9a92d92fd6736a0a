"""``kuvasz source erase --table T --key K``: one row leaves the lake for good, with all versions of it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal

from kuvasz.admin.commands import Selection
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, place_of
from kuvasz.index import seed
from kuvasz.lake.about.tables import REJECTS
from kuvasz.lake.erasure import erasure
from kuvasz.lake.erasure.journal import Journal
from kuvasz.lake.erasure.rows import MISFIT_COLUMNS, KeyRows, MisfitRows, RowsToErase
from kuvasz.lake.format import schema, table_identity
from kuvasz.lake.table.notes import PARKED_PREFIX
from kuvasz.parking.ports import LogDamaged
from kuvasz.parking.store import logs_of
from kuvasz.state.store import state_of
from kuvasz.state.tables import TableState
from kuvasz.sync.rules.targets import target_of
from kuvasz.verbs.lake import row_at_source, row_key
from kuvasz.verbs.lakeview import LakeView, seen
from kuvasz.verbs.sources import erased_log, erased_state, erasing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table

    from kuvasz.config.model import Config
    from kuvasz.config.sources import MappedTarget, TargetFeed
    from kuvasz.lake.java.signing_key import SigningKey
    from kuvasz.parking.ports import LogStore
    from kuvasz.verbs.lake.row_key import RowKey

_NAMED: Final = "kuvasz source erase: a row needs its table and its key"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """What a person asks to be erased."""

    table: str | None  #: as a source or the lake calls it
    key: tuple[str, ...]  #: as for `row_key.parse`
    sid: str | None = None  #: of the row, or the name of its source; None: the rows of all sources with this key
    database: str | None = None  #: only of this group
    with_unclear: bool = False  #: with the rejected rows of which nobody can tell whether they have the key


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The row in one target."""

    target: MappedTarget
    feeds: tuple[TargetFeed, ...]  #: whose rows are meant
    key: RowKey
    sid: str | None
    with_unclear: bool

    def to_erase(self) -> KeyRows:
        """Return its versions."""
        fields = (field.name for field in self.key.fields)
        return KeyRows(values=dict(zip(fields, self.key.values, strict=True)), is_key=self.key.is_of)

    def rejected(self) -> MisfitRows:
        """Return what was rejected of it."""
        return MisfitRows(
            target=self.target.identifier,
            is_key=self.key.is_of,
            may_be_key=self.key.may_be_of,
            sid=self.sid,
            sources=frozenset(feed.source.name for feed in self.feeds if feed.spec.schemas is None),
            with_unclear=self.with_unclear,
        )


def run(
    config: Config,
    asked: ErasureRequest,
    *,
    is_sure: bool,
    with_tags: bool = False,
    signs_with: SigningKey | None = None,
    session: Any = None,  # noqa: ANN401 (Spark's, which is known to `lake` alone)
    is_owner: bool = False,
) -> dict[str, Any]:
    """Erase a row from the targets of one table, and return the receipt.

    Args:
        config: The map.
        asked: Which row.
        is_sure: Without it nothing is done.
        with_tags: Tags and branches that hold older snapshots go as well; else they are refused.
        signs_with: Signs the receipt; None: it is not signed.
        session: A running Spark; started and stopped otherwise.
        is_owner: Whoever calls owns the state, and nothing runs.

    Raises:
        ConfigError: There is no such table, it is no key, nobody is sure, or something stands against it.
        StateTaken: A kuvasz runs.
        KuvaszError: It could not be done. It may be begun again, and goes on where it was.
    """
    rows = _rows(config, asked)
    targets = [target_of(row.target.feeds[0].spec) for row in rows]
    if not is_sure:
        raise ConfigError(_would(rows), hint=erasing.UNSURE)
    with contextlib.nullcontext() if is_owner else state_of(config).own(erasing.ERASES):
        erased_log.refuse_staged(config)
        for row in rows:
            _refuse_logs(config, row.target)
        journal = _journal(config, asked, rows)
        with erasure.opened(config, session) as work:
            seal = erasing.Seal(work, signs_with)
            rejects = work.rejects()
            work.refuse_branches([*targets, *rejects])
            if not with_tags:
                work.refuse_names([*targets, *rejects])
            erasing.begin(journal, with_tags=with_tags)
            everything: list[tuple[Any, RowsToErase]] = [
                (target, row.to_erase()) for target, row in zip(targets, rows, strict=True)
            ]
            everything += [(target, row.rejected()) for target in rejects for row in rows[:1]]
            work.run(everything, journal)
            journal.told["other_tables"] = work.left_behind([REJECTS])
            journal.told["outside"] = {"log": erased_log.forget(config)}
            if not is_owner:
                erasing.tell(config, journal, work)
        journal.told["at_source"] = [one for row in rows for one in _at_source(row)]
        journal.told["outside"] |= erased_state.forget(config, journal.told.get("tables", {}), ())
        erased = {"table": asked.table, "sid": asked.sid, "key_columns": list(rows[0].key.texts), "key": journal.id}
        return erasing.finish(journal, erased, asked.table or "", seal)


def would(config: Config, asked: ErasureRequest) -> str:
    """Return what an erasure would do, for who is not sure yet.

    Raises:
        ConfigError: There is no such table, or it is no key.
    """
    return _would(_rows(config, asked))


def _rows(config: Config, asked: ErasureRequest) -> list[_Row]:
    if asked.table is None or not asked.key:
        raise ConfigError(_NAMED, hint="name the table and the key: --table items --key 4711")
    view, found = LakeView(config), []
    for target in config_sources.targets(config_sources.with_all_tables(config)):
        feeds = tuple(feed for feed in target.feeds if _is_meant(feed, asked))
        table = view.load(target.identifier) if feeds else None
        if table is not None:
            found.append(_row(target, feeds, table, asked, takes_misfits=True))
    if not found:
        raise ConfigError(f"the lake has no table {asked.table!r} of the map", hint="`kuvasz plan` lists the tables")
    if len(found) > 1:
        raise ConfigError(
            f"{asked.table!r} is several tables: {', '.join(row.target.identifier for row in found)}",
            hint="name one as the lake calls it, with its namespace",
        )
    (row,) = found
    if row.key.is_misfit and not (_is_rejected(config, view, row) or _journal(config, asked, found).is_begun):
        table = view.load(row.target.identifier)
        assert table is not None
        _row(row.target, row.feeds, table, asked, takes_misfits=False)
    return found


def _is_rejected(config: Config, view: LakeView, row: _Row) -> bool:
    """Whether a row with this key was rejected, which may be for its key."""
    table = None if config.lake.about is None else view.load(f"{config.lake.about}.{REJECTS}")
    if table is None:
        return False
    mine, rejected = EqualTo(term=Reference("target"), value=literal(row.target.identifier)), row.rejected()
    batches = table.scan(row_filter=mine, selected_fields=MISFIT_COLUMNS).to_arrow_batch_reader()
    return any(rejected.has(one) for batch in batches for one in batch.to_pylist())


def _is_meant(feed: TargetFeed, asked: ErasureRequest) -> bool:
    state = TableState(target=feed.spec.identifier, source=feed.source.name, table=str(feed.spec.table))
    return Selection(table=asked.table, sid=None, database=asked.database).has(state, None, feed.source.database)


def _row(
    target: MappedTarget, feeds: tuple[TargetFeed, ...], table: Table, asked: ErasureRequest, *, takes_misfits: bool
) -> _Row:
    named = {feed.source.name: feed.source.sid for feed in feeds if feed.spec.schemas is None}
    sid = named.get(asked.sid, asked.sid) if asked.sid is not None and target.has_sid else None
    mine = tuple(feed for feed in feeds if sid is None or feed.spec.schemas is not None or feed.source.sid == sid)
    by = tuple(json.loads(table.properties.get(table_identity.KEY_PROPERTY, "[]")))
    columns = schema.parse(table.schema().model_dump_json())
    padded = row_key.widths(seen(table, target.identifier).known.values(), columns)
    lake = (columns, table.schema())
    key = row_key.parse(asked.key, sid, by, lake, target.identifier, padded, takes_misfits=takes_misfits)
    key = dataclasses.replace(key, earlier=row_key.earlier_names(table.schemas().values(), columns))
    _refuse_parked(table, target)
    return _Row(target=target, feeds=mine, key=key, sid=sid, with_unclear=asked.with_unclear)


def _refuse_parked(table: Table, target: MappedTarget) -> None:
    """Refuse a table that has changes in a parking log: none can be taken out of it.

    Raises:
        ConfigError: Changes of it are parked.
    """
    parked = sorted(name.removeprefix(PARKED_PREFIX) for name in table.properties if name.startswith(PARKED_PREFIX))
    if parked:
        raise _parked(target, parked)


def _refuse_logs(config: Config, target: MappedTarget) -> None:
    """Refuse a table that knows nothing of a parking log, as one that somebody set back; remove what is finished.

    Raises:
        ConfigError: Changes of it are parked.
        StateError: A log that a kill has left cannot be removed.
    """
    logs, sources = logs_of(config), [feed.source.name for feed in target.feeds]
    if parked := [source for source in sources if _has_changes(logs, target.identifier, source)]:
        raise _parked(target, parked)
    for source in sources:
        logs.remove(target.identifier, source)


def _has_changes(logs: LogStore, target: str, source: str) -> bool:
    try:
        return logs.unfinished_lsn(target, source) > 0
    except LogDamaged:
        return True


def _parked(target: MappedTarget, sources: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{place_of(table=target.identifier)}: changes of {', '.join(sources)} are parked, perhaps of the row",
        hint="let the table follow again (`kuvasz resume`), stop kuvasz when it streams, and begin again",
    )


def _would(rows: Sequence[_Row]) -> str:
    tables = ", ".join(row.target.identifier for row in rows)
    whose = "of every source" if rows[0].sid is None else f"of {rows[0].sid!r}"
    return f"source erase removes the rows {whose} with this key for good, with all older snapshots, from {tables}"


def _journal(config: Config, asked: ErasureRequest, rows: Sequence[_Row]) -> Journal:
    more = {"with_unclear": "all"} if asked.with_unclear else {}
    what = {"table": asked.table, "sid": asked.sid, "key": _digest(config, rows), **more}
    return Journal(config.pipeline.state_folder, what)


def _digest(config: Config, rows: Sequence[_Row]) -> str:
    """Return a digest of the key that nobody can try keys against who does not have this machine's secret."""
    secret = seed.secret_of(config.pipeline.state_folder / "index")
    text = json.dumps([sorted(row.key.texts.items()) for row in rows], ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=secret[:64], digest_size=16).hexdigest()


def _at_source(row: _Row) -> list[dict[str, Any]]:
    """Return which sources have the row still, without any of its values."""
    found = row_at_source.look(row.feeds, row.key.texts, row.sid)
    return [
        {"source": one.source, "table": one.table, "rows": len(one.rows), "why_not": one.why_not} for one in found
    ]


__all__ = ["ErasureRequest", "run", "would"]
