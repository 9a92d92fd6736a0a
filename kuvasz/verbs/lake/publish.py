"""The verb `publish`: have main show what tables have on the branch that is written.

The running kuvasz is asked, which knows whether all sources are in a table; without one it is done here, and the
table itself says which it lacks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kuvasz.admin.branches.chosen import chosen, tag_of
from kuvasz.admin.branches.publish_request import as_json
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, LakeError, place_of, verify_of
from kuvasz.lake.iceberg import branches
from kuvasz.verbs import remote, text, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source
    from kuvasz.verbs.verify import OnProgress
    from kuvasz.verify.report import Report


def run(
    config: Config, *, table: str | None, branch: str | None, cut: str | None, is_trial: bool, is_forced: bool,
    comparing: OnProgress | None = None,
    session: Any = None,  # noqa: ANN401 (Spark's)
) -> list[dict[str, Any]]:  # fmt: skip
    """Publish tables of the map.

    Args:
        config: The whole configuration.
        table: Only these, as their sources or the lake call them; each ``*`` stands for any text.
        branch: Only those that the map has written to this one.
        cut: The name of a cut, whose moment is published; None: the newest snapshots.
        is_trial: Change nothing, and say what would be.
        is_forced: Also tables of which a source is in error, or not copied yet.
        comparing: Tables are compared with their sources first, and published only if they are equal; told how far
            that is. None: they are not compared.
        session: A running Spark; started and stopped otherwise, where it is needed.

    Returns:
        Per table what main showed before and shows now, or `error` with its `hint`.

    Raises:
        ConfigError: The map has no such table, or a cut is to be compared.
        Refused: The running kuvasz cannot publish.
        LakeError: No kuvasz runs, and the lake cannot be reached.
    """
    if comparing is not None and cut is not None:
        raise ConfigError(
            "--verify with --cut: what is compared is what the branch has now, not what a cut has tagged",
            hint="`kuvasz publish --verify` publishes what the branch has, if that equals its sources",
        )
    mapped = config_sources.resolve(config)
    targets = chosen(mapped, table, branch)
    publication = _Publication(config, mapped, cut, session, is_trial=is_trial, is_forced=is_forced)
    refused = {} if comparing is None else _unequal(config, targets, comparing, session)
    if not refused:
        return publication.of(targets, table, branch)
    return [
        one
        for target in targets
        for one in ([refused[target]] if target in refused else publication.of([target], target, None))
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _Publication:
    """How tables are published: by the running kuvasz, or here."""

    config: Config
    mapped: Sequence[Source]
    cut: str | None
    session: Any
    _: dataclasses.KW_ONLY
    is_trial: bool
    is_forced: bool

    def of(self, targets: Sequence[str], table: str | None, branch: str | None) -> list[dict[str, Any]]:
        """Publish the targets that `table` and `branch` mean."""
        config, options = self.config, {"is_trial": self.is_trial, "is_forced": self.is_forced}
        try:
            found = remote.publish(config, table=table, branch=branch, cut=self.cut, **options)
            there = {one["target"] for one in found}
            return [*found, *(_absent(target) for target in targets if target not in there)]
        except (remote.NotRunning, remote.ForeignServer, ConfigError):
            # Nobody runs, or it cannot be asked: Iceberg fences two writers.
            fed = {target: _sources_of(self.mapped, target) for target in targets}
            outcomes = branches.publish_once(config, fed, tag_of(self.cut), session=self.session, **options)
        return [
            as_json(target, outcome[1] if isinstance(outcome, tuple) else outcome)
            for target, outcome in zip(targets, outcomes, strict=True)
        ]


def _unequal(
    config: Config, targets: Sequence[str], on_progress: OnProgress, session: Any  # noqa: ANN401 (Spark's)
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Return what is told of the tables that do not equal all of their sources, or of which nobody knows."""
    reports = verify.reports(config, targets=targets, on_progress=on_progress, session=session)
    unequal: dict[str, list[str]] = {}
    for report in reports:
        if why := _why_unequal(report):
            unequal.setdefault(report.target, []).append(f"{report.table} of {report.source}: {why}")
    compared = {report.target for report in reports}
    unequal |= {target: ["nothing of it was compared"] for target in targets if target not in compared}
    return {
        target: as_json(
            target,
            LakeError(
                f"{place_of(table=target)}: it is not known to equal its sources: {'; '.join(found)}",
                hint=f"{verify_of(target)} says more, and with --fix it mends what it can",
            ),
        )
        for target, found in unequal.items()
    }


def _why_unequal(report: Report) -> str:
    """Say why a table is not known to equal a source; empty if it does."""
    if report.error or report.skipped:
        return report.error or report.skipped
    if report.left:
        return f"{report.left:,} keys differ"
    return f"{report.undecided:,} keys could not be decided" if report.undecided else ""


def _absent(target: str) -> dict[str, Any]:
    """Return what is told of a table of the map that nobody has published."""
    error = LakeError(
        f"{place_of(table=target)}: no running kuvasz that answers has it just now",
        hint="`kuvasz status` says who does not answer; where the map was changed since, `kuvasz reload` it first",
    )
    return as_json(target, error)


def _sources_of(mapped: Iterable[Source], target: str) -> list[str]:
    """Return what a target's sources are called; which members and tenants there are only their source knows."""
    return [
        source.name_of(spec)
        for source in mapped
        for spec in source.tables
        if spec.identifier == target and not spec.is_collapse
    ]


def render(outcomes: Sequence[dict[str, Any]], *, is_trial: bool) -> str:
    """Return the tables for a terminal."""
    head = ("table", "branch", "main showed", "main shows" if not is_trial else "main would show")
    rows = [
        (one["target"], "", one["error"], "") if "error" in one
        else (one["target"], one["branch"], _snapshot(one["before"]), _snapshot(one["after"]))
        for one in outcomes
    ]  # fmt: skip
    hints = dict.fromkeys(one["hint"] for one in outcomes if one.get("hint"))
    return "\n".join([text.table(head, rows), *(f"hint: {hint}" for hint in hints)])


def _snapshot(number: int | None) -> str:
    return "nothing" if number is None else str(number)


def exit_code(outcomes: Sequence[dict[str, Any]]) -> int:
    """Return 1 if a table cannot be published."""
    return int(any("error" in outcome for outcome in outcomes))


__all__ = ["exit_code", "render", "run"]
