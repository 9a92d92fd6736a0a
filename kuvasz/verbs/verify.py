"""``kuvasz verify``: compare source and lake, tell what differs, and mend it if asked to."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, KuvaszError
from kuvasz.shown import escapes
from kuvasz.state.store import log_index
from kuvasz.verbs import remote, text
from kuvasz.verify.mapped_tables import members_of, stray_reports
from kuvasz.verify.read_only import ReadOnlyLake
from kuvasz.verify.report import SHOWN, Report
from kuvasz.verify.verification import Verification

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec

DIFFERENCES_FOUND = 4

#: States of a table of which nobody can tell how far it is.
_NOT_FOLLOWING = frozenset({"error", "paused", "copying"})

OnProgress = Callable[[str, str, str, int, int], None]


def reports(
    config: Config,
    *,
    table: str | None = None,
    sid: str | None = None,
    targets: Collection[str] | None = None,
    is_fixing: bool = False,
    on_progress: OnProgress = lambda *_: None,
    session: Any = None,  # noqa: ANN401 (Spark's, which is known to `lake` alone)
) -> list[Report]:
    """Compare the map's tables, one after another, in the map's order.

    Args:
        config: The whole configuration.
        table: Only this one, as the source or the lake calls it.
        sid: Only this source.
        targets: Only these tables of the lake, by their full names.
        is_fixing: Mend what differs.
        on_progress: Told how far it is.
        session: A running Spark; started otherwise.

    Raises:
        ConfigError: The map has no such table or sid.
        LakeError: Spark or the catalog does not answer.
    """
    chosen = _chosen(config, table, sid)
    if targets is not None:
        chosen = [(source, spec) for source, spec in chosen if spec.identifier in targets]
    why_not = _not_following(config)
    index = None if config.cluster.log is None else log_index(config)
    with ReadOnlyLake(config, session) as lake:
        found: list[Report] = []
        verifications: dict[str, Verification] = {}
        for source, spec in chosen:
            if source.name not in verifications:
                verifications[source.name] = Verification(
                    source, lake, is_fixing=is_fixing, on_progress=on_progress, index=index
                )
            found += [
                verifications[source.name].run(one, why_not.get((source.name, str(one.table)), ""))
                for one in members_of(source, spec, sid)
            ]
        if sid is not None and not found:
            raise ConfigError(f"--sid {sid}: no schema is that of this tenant", hint="`kuvasz plan` lists the tables")
        return found if sid is not None else found + stray_reports(config, lake, [spec for _, spec in chosen])


def _not_following(config: Config) -> dict[tuple[str, str], str]:
    """Return why tables do not follow, as a running kuvasz tells: (source, table in the map) -> reason."""
    try:
        answer = remote.status(config)
    except KuvaszError:
        return {}
    return {
        (source["source"], table.get("mapped_as") or table["table"]): table["error"]["message"]
        if table["error"]
        else f"it is {table['state']}"
        for source in answer["sources"]
        for table in source["tables"]
        if table["state"] in _NOT_FOLLOWING
    }


def _chosen(config: Config, table: str | None, sid: str | None) -> list[tuple[Source, SourceTableSpec]]:
    every = [(source, spec) for source in config_sources.resolve(config) for spec in source.tables]
    mine = [
        (source, spec)
        for source, spec in every
        if sid is None or sid == source.name or spec.schemas is not None or sid == source.sid
    ]  # which tenants there are is found out at the source
    if not mine:
        known = sorted({source.sid or source.name for source, _ in every})
        raise ConfigError(f"--sid {sid}: the map has no such source", hint=f"it has {', '.join(known) or 'none'}")
    found = [(source, spec) for source, spec in mine if table is None or table in _called(spec)]
    if not found:
        known = sorted({spec.identifier for _, spec in mine})
        raise ConfigError(f"--table {table}: the map has no such table", hint=f"it has {', '.join(known)}")
    return found


def _called(spec: SourceTableSpec) -> frozenset[str]:
    return names.called(spec.identifier, spec.table) | {spec.target}


def exit_code(found: Sequence[Report]) -> int:
    """Return 4 if keys differ still, else the code of the worst error, 1 where a table was not compared, else 0."""
    if any(report.left for report in found):
        return DIFFERENCES_FOUND
    return max((report.error_code or int(report.undecided > 0) for report in found), default=0)


@contextlib.contextmanager
def progress() -> Iterator[OnProgress]:
    """Give a function that draws a bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting spark", total=None)

        def draw(source: str, target: str, phase: str, done: int, total: int) -> None:
            told = escapes.one_line(f"{target} of {source}: {phase}")
            bar.update(task, description=told, completed=done, total=total or None)

        yield draw


def render(found: Sequence[Report]) -> str:
    """Return the reports for a person."""
    lines: list[str] = []
    for report in found:
        lines += _lines(report)
    differing = sum(report.left > 0 for report in found)
    failed = sum(bool(report.error_code) for report in found)
    compared = sum(not report.error and not report.skipped for report in found)
    lines.append(f"{compared} tables compared, {differing} differ, {failed} could not be compared")
    return text.lines(lines)


def _lines(report: Report) -> list[str]:
    name = f"{report.target} of {report.source}"
    if report.is_member:
        name = f"{report.table} in {name}"
    if report.error:
        return [f"{name}: error: {report.error}", *([f"  hint: {report.hint}"] if report.hint else [])]
    if report.skipped:
        return [f"{name}: skipped: {report.skipped}"]
    rows = f"{report.source_rows:,} rows at {report.lsn} ({report.compared})"
    notes = []
    if report.gaps:
        notes.append(f"  {report.gaps:,} gaps are recorded: changes that were lost at the source")
    if report.waiting:
        notes.append(f"  {report.waiting:,} keys have changes that kuvasz has still to apply")
    if report.rejected:
        notes.append(f"  {report.rejected:,} rows of the source do not fit and were rejected: see `kuvasz rejects`")
    if report.undecided:
        notes.append(f"  {report.undecided:,} keys change all the time and could not be decided: verify again")
    if not report.differences:
        return [f"{name}: equal, {rows}", *notes]
    counts = ", ".join(
        f"{getattr(report, kind):,} {kind}" for kind in ("missing", "extra", "changed", "doubled", "faults")
        if getattr(report, kind)
    )  # fmt: skip
    lines = [f"{name}: {report.differences:,} keys differ ({counts}); {rows}, {report.lake_rows:,} in the lake"]
    lines += [f"  {entry.kind:8} {_key(report.key, entry.key)}" for entry in report.keys]
    if report.differences > len(report.keys):
        lines.append(f"  … the first {len(report.keys)} are shown (at most {SHOWN})")
    if report.mended:
        lines.append(f"  {report.mended:,} keys mended, {report.left:,} left")
    if report.why_left:
        lines.append(f"  hint: {report.why_left}")
    return lines + notes


def _key(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def as_json(found: Sequence[Report]) -> list[dict[str, Any]]:
    """Return the reports ready for JSON."""
    return [
        dataclasses.asdict(report)
        | {
            "differences": report.differences,
            "keys": [
                {"kind": entry.kind, "key": dict(zip(report.key, entry.key, strict=True))} for entry in report.keys
            ],
        }
        for report in found
    ]


__all__ = ["DIFFERENCES_FOUND", "as_json", "exit_code", "progress", "render", "reports"]
