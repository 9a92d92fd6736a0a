"""``kuvasz wait``: until the lake shows a moment of the sources, as the running kuvasz says of itself in ``/status``.

A moment is a time, by the sources' own clocks, or an LSN of a source. A table shows it once the facts `valid_through`
and `durable_lsn` say so; one that does not stream has neither (see `kuvasz.admin.observer.Snapshot.valid_through`).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.admin.commands import Selection
from kuvasz.config import sources as config_sources
from kuvasz.config import units
from kuvasz.errors import ConfigError, EarlierError, SlotLost, place_of, resume_of, retry_of
from kuvasz.shown import figures
from kuvasz.source import conninfo
from kuvasz.source.catalog import look
from kuvasz.state.tables import TableState
from kuvasz.verbs import moments, remote, text
from kuvasz.verbs.check import THREADS
from kuvasz.verbs.moments import Moment

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source

#: Between two looks; and how many times as long as one takes.
_LOOK_S = 0.5
_PAUSE_TO_LOOK = 10.0

#: Looks in a row that show that a table will not come: one may fall between an error and its note of another try.
_LOOKS_TO_GIVE_UP = 2

_A_HUMAN = SlotLost.exit_code

#: In place of the tables of a source that nobody has looked at yet: patterns and the like do not say which it has.
_UNSEEN: Mapping[str, Any] = {
    "table": "", "mapped_as": None, "target": "", "state": "new", "error": None, "retry_at": None,
    "durable_lsn": None, "valid_through": None,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one table of one source is."""

    source: str
    target: str
    table: str  #: as the source calls it
    state: str
    is_there: bool
    durable_lsn: int | None = None
    valid_through: float | None = None  #: unix seconds
    behind_seconds: float | None = None  #: None if it is there, or nobody knows
    behind_bytes: int | None = None  #: of WAL
    why: str = ""  #: it is not there yet
    is_stuck: bool = False  #: it does not come without a person
    hint: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReport:
    """How the waiting ended."""

    moment: Moment
    tables: tuple[Standing, ...]
    seconds: float  #: that were waited
    is_stuck: bool = False  #: a table does not come without a person
    silent: tuple[str, ...] = ()  #: why nobody knows of all that is waited for

    @property
    def is_reached(self) -> bool:
        """Whether the lake shows the moment."""
        return bool(self.tables) and not self.silent and all(one.is_there for one in self.tables)


def run(
    config: Config,
    *,
    through: str | None = None,
    lsns: Sequence[str] = (),
    table: str | None = None,
    sid: str | None = None,
    timeout: str = "10m",
) -> WaitingReport:
    """Wait until the lake shows a moment.

    Args:
        config: The whole configuration.
        through: A time as ISO 8601 has it, in UTC unless it says otherwise.
        lsns: Each ``sid:X/X``. With neither: where the WAL of each source ends now.
        table: Only this one, as the source or the lake calls it.
        sid: Only this source.
        timeout: A duration; with 0 it looks once.

    Raises:
        ConfigError: What was given makes no sense, or there is no such table or source.
        NotRunning: No kuvasz answers, or none any more when the time was up.
        Refused: An earlier version runs.
        SourceError: A source does not say where its WAL ends.
    """
    waiting = WaitingLooks(config, through=through, lsns=lsns, table=table, sid=sid, timeout=timeout)
    waiting.begin(remote.status(config))  # first: without a kuvasz nothing comes
    while True:
        asked_at = time.monotonic()
        try:
            answer = remote.status(config)
        except remote.NotRunning:  # it may be on its way back
            if waiting.is_over(asked_at):
                raise
        else:
            if (outcome := waiting.look(answer, asked_at)) is not None:
                return outcome
        time.sleep(min(waiting.rest_s(), max(_LOOK_S, _PAUSE_TO_LOOK * (time.monotonic() - asked_at))))


class WaitingLooks:
    """A wait, answer by answer of a kuvasz.

    Args:
        config: The whole configuration.
        through: See `run`, also for the others.
        lsns: Each ``sid:X/X``.
        table: Only this one.
        sid: Only this source.
        timeout: A duration.

    Raises:
        ConfigError: The duration is none.
    """

    def __init__(
        self, config: Config, *, through: str | None = None, lsns: Sequence[str] = (), table: str | None = None,
        sid: str | None = None, timeout: str = "10m",
    ) -> None:  # fmt: skip
        self._config = config
        self._through = through
        self._lsns = lsns
        self._is_end_of_wal = through is None and not lsns
        self._selection = Selection(table=table, sid=sid)
        self._timeout_s = _duration(timeout)
        self._begun = time.monotonic()
        self._moment: Moment | None = None
        self._concerned: frozenset[str] = frozenset()  #: names of the sources that are waited for
        self._stuck = 0  #: looks in a row that showed a table that does not come
        self._sids = {source.name: source.sid for source in config_sources.resolve(config)}

    def begin(self, answer: Mapping[str, Any]) -> None:
        """Find out what is waited for: sources may be asked. The time counts from here on.

        Raises:
            ConfigError: What was given makes no sense, or there is no such table or source.
            Refused: An earlier version runs.
            SourceError: A source does not say where its WAL ends.
        """
        if any("valid_through" not in table for source in answer["sources"] for table in source["tables"]):
            message = f"the running kuvasz, {answer['version']}, does not say how far its tables are valid"
            raise remote.Refused(message, hint="it is older than this one: start it anew")
        concerned = _concerned(self._config, self._selection, answer)
        self._concerned = frozenset(source.name for source in concerned)
        self._moment = _moment(concerned, self._through, self._lsns)
        self._begun = time.monotonic()

    def look(self, answer: Mapping[str, Any], asked_at: float) -> WaitingReport | None:
        """Return how it ended, by what a kuvasz says of itself; None while it goes on.

        Args:
            answer: What it says.
            asked_at: When it was asked.
        """
        assert self._moment is not None
        there = {one["source"] for one in answer["sources"]}
        is_all = all(name in there or not self._moment.concerns(name) for name in self._concerned)
        outcome = WaitingReport(
            moment=self._moment,
            tables=_standings(answer, self._selection, self._moment, self._sids, is_end_of_wal=self._is_end_of_wal),
            seconds=time.monotonic() - self._begun, silent=() if is_all else tuple(answer.get("silent", ())),
        )  # fmt: skip
        self._stuck = self._stuck + 1 if any(one.is_stuck for one in outcome.tables) else 0
        if outcome.is_reached or self.is_over(asked_at) or self._stuck == _LOOKS_TO_GIVE_UP:
            return dataclasses.replace(outcome, is_stuck=self._stuck > 0)
        return None

    def is_over(self, now: float) -> bool:
        """Whether the time is up."""
        return now - self._begun >= self._timeout_s

    def rest_s(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._begun + self._timeout_s - time.monotonic())


def _concerned(config: Config, selection: Selection, answer: Mapping[str, Any]) -> list[Source]:
    """Return the sources of the tables that are meant, as map or running kuvasz know them.

    Raises:
        ConfigError: Neither knows any.
    """
    found = []
    for source in config_sources.resolve(config):
        mapped = [
            TableState(target=spec.identifier, source=source.name, table=str(spec.table)) for spec in source.tables
        ]
        running = [
            _state(source.name, table)
            for one in answer["sources"]
            for table in one["tables"]
            if one["source"] == source.name
        ]
        if any(selection.has(state, source.sid) for state in (*mapped, *running)):
            found.append(source)
    if not found:
        raise ConfigError(f"the map has no {selection.describe()}", hint="`kuvasz status` lists the tables")
    return found


def _state(source: str, table: Mapping[str, Any]) -> TableState:
    return TableState(target=table["target"], source=source, table=table["table"], mapped=table["mapped_as"] or "")


def _moment(sources: Sequence[Source], through: str | None, lsns: Sequence[str]) -> Moment:
    if through is not None or lsns:
        return moments.given(sources, through, lsns, "--through")
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return Moment(lsns=dict(zip((one.name for one in sources), pool.map(_wal_end, sources), strict=True)))


def _wal_end(source: Source) -> int:
    with contextlib.closing(conninfo.connect(source.url.get())) as connection:
        return look.end_to_send(connection)


def _duration(given: str) -> float:
    try:
        return units.parse_duration(0 if given == "0" else given)
    except ValueError as error:
        raise ConfigError(f"--timeout {error}", hint="write --timeout 10m") from error


# How far it is


def _standings(
    answer: Mapping[str, Any], selection: Selection, moment: Moment, sids: Mapping[str, str | None], *,
    is_end_of_wal: bool,
) -> tuple[Standing, ...]:  # fmt: skip
    """Return how far the tables are that are meant.

    Args:
        answer: What a kuvasz says of itself.
        selection: Which tables are meant.
        moment: What is waited for.
        sids: Source -> sid.
        is_end_of_wal: It is where the WAL of each source ended when it was asked. Whoever answered may be another
            server than the lake has rows of, until its stream goes on.
    """
    return tuple(
        _standing(source, table, moment, is_doubtful=is_end_of_wal and source["state"] != "streaming")
        for source in answer["sources"]
        if moment.concerns(source["source"])
        for table in source["tables"] or ([] if source["state"] == "streaming" else [_UNSEEN])
        if selection.has(_state(source["source"], table), sids.get(source["source"]))
    )


def _standing(
    source: Mapping[str, Any], table: Mapping[str, Any], moment: Moment, *, is_doubtful: bool
) -> Standing:  # fmt: skip
    durable_lsn = None if table["durable_lsn"] is None else lsn.parse(table["durable_lsn"])
    valid = table["valid_through"]
    valid_through = None if valid is None else datetime.datetime.fromisoformat(valid).timestamp()
    found = Standing(
        source=source["source"], target=table["target"], table=table["table"], state=table["state"], is_there=False,
        durable_lsn=durable_lsn, valid_through=valid_through,
    )  # fmt: skip
    if moment.through is not None:
        behind_s = None if valid_through is None else max(0.0, moment.through - valid_through)
        found = dataclasses.replace(found, is_there=behind_s == 0, behind_seconds=behind_s or None)
    else:
        behind = None if durable_lsn is None else max(0, moment.lsns[found.source] - durable_lsn)
        found = dataclasses.replace(found, is_there=behind == 0 and not is_doubtful, behind_bytes=behind or None)
    return found if found.is_there else _explained(found, source, table)


def _explained(found: Standing, source: Mapping[str, Any], table: Mapping[str, Any]) -> Standing:
    """Return how far a table is, with why it is not there."""
    if source["state"] == "error":
        message, _, hint = (source["error"] or "").partition("\nhint: ")
        return dataclasses.replace(found, why=message, hint=hint or None, is_stuck=True)
    if found.state == "paused":
        return dataclasses.replace(found, why="it is paused", hint=resume_of(found.target), is_stuck=True)
    error = table["error"]
    if error is not None:
        is_stuck = error["retry"] != "timed" and table["retry_at"] is None and error["kind"] != EarlierError.__name__
        hint = error["hint"] or retry_of(found.target)
        return dataclasses.replace(found, why=error["message"], hint=hint, is_stuck=is_stuck)
    return dataclasses.replace(found, why=_lack(found, source))


def _lack(found: Standing, source: Mapping[str, Any]) -> str:
    if source["state"] != "streaming":
        told = (source["error"] or "").partition("\n")[0]
        return f"its source is {source['state']}" + (f": {told}" if told else "")
    if found.state != "streaming":
        return f"it is {found.state.replace('_', ' ')}"
    if found.behind_seconds is not None:
        return f"valid through {moments.text_of(found.valid_through or 0.0)}, {found.behind_seconds:.1f} s behind"
    if found.behind_bytes is not None:
        behind = figures.size(found.behind_bytes)
        return f"has all before {lsn.render(found.durable_lsn or 0)}, {behind} of WAL behind"
    return "it is not known how far it is"


def exit_code(outcome: WaitingReport) -> int:
    """Return 0 if the lake shows the moment, 5 if a table waits for a person, 1 if the time was up."""
    if outcome.is_reached:
        return 0
    return _A_HUMAN if outcome.is_stuck else 1


def as_json(outcome: WaitingReport) -> dict[str, Any]:
    """Return an outcome ready for JSON."""
    moment = outcome.moment
    return {
        "reached": outcome.is_reached,
        "stuck": outcome.is_stuck,
        "seconds": round(outcome.seconds, 3),
        "through": None if moment.through is None else moments.text_of(moment.through),
        "lsns": {name: lsn.render(at) for name, at in moment.lsns.items()},
        "silent": list(outcome.silent),
        "tables": [
            dataclasses.asdict(one)
            | {
                "durable_lsn": None if one.durable_lsn is None else lsn.render(one.durable_lsn),
                "valid_through": None if one.valid_through is None else moments.text_of(one.valid_through),
            }
            for one in outcome.tables
        ],
    }


def render(outcome: WaitingReport) -> str:
    """Return an outcome for people: what is missing, table by table."""
    what = outcome.moment.describe()
    if outcome.is_reached:
        count = len(outcome.tables)
        return (
            f"reached after {outcome.seconds:.1f} s: {count} {'table shows' if count == 1 else 'tables show'} {what}"
        )
    if not outcome.tables and not outcome.silent:
        return f"not reached after {outcome.seconds:.1f} s: the running kuvasz has no such table yet"
    missing = [one for one in outcome.tables if not one.is_there]
    ended = "does not come without you" if outcome.is_stuck else "not reached"
    parts = [
        f"{ended}, after {outcome.seconds:.1f} s: {what}; {len(missing)} of {len(outcome.tables)} tables are behind"
    ]
    for one in missing:
        parts.append(f"{place_of(one.source, one.target)}: {one.why}")
        parts += [f"hint: {one.hint}"] if one.hint else []
    parts += [f"not all is known: {told}" for told in outcome.silent]
    return text.lines(parts)


__all__ = ["Standing", "WaitingLooks", "WaitingReport", "as_json", "exit_code", "render", "run"]
