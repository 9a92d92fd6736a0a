"""Measures kuvasz: ``python -m benchmarks [scenario …] [--size quick] [--runs 3] [--rows …]``.

Without a scenario all are run. Every run has a fresh PostgreSQL server; references run in between on the same rows,
and figures of one run can be compared with each other only. All rows are compared at the end: a run that lost or
changed one has no result, and ends with 4.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine
from benchmarks.outcome import WrongResultError
from benchmarks.registry import SCENARIOS
from benchmarks.report import Report
from benchmarks.scenario import SIZES
from benchmarks.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.scenario import Entry

OUT = Path("benchmarks/out")

#: Differences shown of a wrong run.
_SHOWN = 10


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios and return the exit code: 0, 2 for a wrong option, 4 for a wrong lake."""
    given = _parser().parse_args(arguments)
    if given.list:
        print(*(f"{entry.name:20} {entry.summary}" for entry in SCENARIOS.values()), sep="\n")
        return 0
    options = {name: value for name in _options() if (value := getattr(given, name)) is not None}
    if fault := _fault(given.scenarios, options):
        print(f"error: {fault}", file=sys.stderr)
        return 2
    chosen = [SCENARIOS[name] for name in given.scenarios or SCENARIOS]
    facts = machine.facts()
    print(*(f"{name:12} {value}" for name, value in facts.items()), sep="\n")
    for entry in chosen:
        try:
            report = _measured(entry, given, options, facts)
        except WrongResultError as error:
            print(f"\n{entry.name}: WRONG: the lake differs from its source, so there is no result")
            print(*error.args[:_SHOWN], sep="\n")
            return 4
        print(f"\n{report.text()}", flush=True)
        report.save(given.out)
    return 0


def _measured(
    entry: Entry, given: argparse.Namespace, options: Mapping[str, Any], facts: Mapping[str, str]
) -> Report:
    mine = {name: value for name, value in options.items() if name in entry.options()}
    scenario = entry.make(given.size, mine)
    outcomes = []
    for number in range(given.runs):
        profiles = given.out / f"{entry.name}-profiles" if given.profile else None
        with Stand(profiles) as stand:
            stand.say(f"{entry.name}, run {number + 1} of {given.runs}")
            outcomes.append(scenario.measure(stand))
    return Report(scenario=entry.name, options=scenario.options, machine=facts, outcomes=outcomes)


def _fault(scenarios: Sequence[str], options: Mapping[str, Any]) -> str:
    """Say what is wrong with the arguments; empty if nothing is."""
    for name in scenarios:
        if name not in SCENARIOS:
            return f"there is no scenario {name}; hint: --list shows them"
    known = {name for scenario in scenarios or SCENARIOS for name in SCENARIOS[scenario].options()}
    if unknown := sorted(options.keys() - known):
        return f"--{unknown[0].replace('_', '-')} is no option of {', '.join(scenarios)}"
    return ""


def _options() -> dict[str, type]:
    """Return the options of all scenarios with their types."""
    return {name: kind for entry in SCENARIOS.values() for name, kind in entry.options().items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help="see --list; all by default")
    parser.add_argument("--list", action="store_true", help="show the scenarios")
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--runs", type=int, default=1, help="repeat, and show min, median and max")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for JSON and pictures")
    parser.add_argument("--profile", action="store_true", help="record driver, workers and JVM into pictures")
    group = parser.add_argument_group("options of scenarios", "they win over the size")
    for name, kind in _options().items():
        option = f"--{name.replace('_', '-')}"
        if kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None)
        else:
            group.add_argument(option, type=kind, default=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
