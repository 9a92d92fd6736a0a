"""What a PromQL query asks for: enough of the language to hold the queries of deploy/ against a page of metrics.

Whether a query is well formed is promtool's to say (Prometheus documentation, "Querying basics").
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from kuvasz.admin.metrics import Metrics
from kuvasz.admin.notices.webhooks import Webhooks
from kuvasz.config.model import Config, MetricsScope
from kuvasz.lake.memory.lake import MemoryAbout
from kuvasz.parking.logs import ParkedView
from kuvasz.ports import Receipt, Upkeep
from kuvasz.state.memory import MemoryNotices
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from tests.support.snapshots import CLOCK, NOW, SLOT, STAGED, snapshot

#: What Prometheus says of a target by itself, and gives each of its samples.
OF_PROMETHEUS = "up"
TARGET = {"job": "kuvasz", "instance": "kuvasz:8000"}

_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_BRACED = re.compile(r"([a-zA-Z_]\w*)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_BARE = re.compile(r"(?<![\w.$])([a-zA-Z_]\w*)(?!\w|\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One metric of a query, with its matchers: label, operator, value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a sample with these labels is meant; a label that it lacks is empty, as in PromQL."""
        return all(_holds(operator, labels.get(name, ""), value) for name, operator, value in self.matchers)


def asked(query: str) -> list[Asked]:
    """Return the metrics that a query asks for."""
    query = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", "", _GROUPING.sub("", query))
    braced = [
        Asked(metric=name, matchers=tuple(_MATCHER.findall(matchers))) for name, matchers in _BRACED.findall(query)
    ]
    bare = [name for name in _BARE.findall(_BRACED.sub("", query)) if name not in _WORDS]
    return [*braced, *(Asked(metric=name) for name in bare)]


def grouped(query: str) -> set[str]:
    """Return the labels by which a query groups or matches."""
    return {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",") if label.strip()}


def faults(query: str, page: Mapping[str, list[dict[str, str]]]) -> list[str]:
    """Return what a query asks of a page that the page does not have."""
    found = []
    labels: set[str] = set()
    for one in asked(query):
        samples = page.get(one.metric, [])
        known = {label for sample in samples for label in sample}
        labels |= known
        found += [f"{one.metric} has no label {name}" for name, _, _ in one.matchers if samples and name not in known]
        if not any(map(one.takes, samples)):
            found.append(f"no sample of {one.metric}{list(one.matchers)}")
    return found + [f"no label {label} in {query}" for label in sorted(grouped(query) - labels)]


@functools.cache
def page() -> dict[str, list[dict[str, str]]]:
    """Return the labels of all samples of two servers' `/metrics`, one with `server.metrics: per_source`.

    Rendered as the server does, of a moment in which everything is known.
    """
    found: dict[str, list[dict[str, str]]] = {OF_PROMETHEUS: [TARGET]}
    for scope in MetricsScope:
        for family in text_string_to_metric_families(rendered(scope)):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels | TARGET)
    return found


def named(queries: Iterable[str]) -> set[str]:
    """Return the metrics that any of the queries asks for."""
    return {one.metric for query in queries for one in asked(query)}


def _webhooks() -> Webhooks:
    told = {"webhook": "https://hooks.example.com", "secret": "0123456789abcdef"}
    config = Config.model_validate({"databases": [], "notify": [told]})
    return Webhooks(lambda: config.notify, MemoryAbout(), MemoryNotices(), str)


def rendered(scope: MetricsScope) -> str:
    """Return a page of metrics as the server makes it, of a moment in which everything is known."""
    metrics = Metrics(scope)
    metrics.more.append(_webhooks().metrics)
    metrics.note(Receipt(target="shop.items", positions={}, rows=1, snapshot_id=4, seconds=0.2))
    files = Upkeep(
        target="shop.items", files=4, bytes=1000, rows=200, dead_rows=50, delete_files=2, snapshots=7, rewrites=3,
        last_at=NOW - 60, next_at=NOW + 60, changed_bytes=500, rewritten_bytes=900,
    )  # fmt: skip
    moment = snapshot(
        facts={"slot": dataclasses.replace(SLOT, safe_bytes=1 << 30)},
        table={"state": State.COPYING, "copy_began": CLOCK - 20, "copy_done": 1},
        parked={("shop.items", "shop_eu"): ParkedView(bytes=700, since=NOW - 60, first_lsn=0x400, is_full=False)},
        staged=STAGED,
        verdicts={("shop.items", "shop_eu"): Verdict(at=NOW - 60, lsn="0/400", rows=7, tried_at=NOW - 60)},
    )
    (table,) = moment.view.tables  # one that is copied, of which nobody can say how far it is
    other = dataclasses.replace(table, target="shop.others", state=State.STREAMING)
    view = dataclasses.replace(moment.view, upkeep=(files,), tables=(table, other))
    return metrics.render(dataclasses.replace(moment, view=view)).decode()


def _holds(operator: str, has: str, value: str) -> bool:
    is_same = re.fullmatch(value, has) is not None if "~" in operator else has == value
    return is_same != operator.startswith("!")


__all__ = ["OF_PROMETHEUS", "TARGET", "Asked", "asked", "faults", "grouped", "named", "page", "rendered"]
