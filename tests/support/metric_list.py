"""The metrics as docs/metrics.md lists them, from a page of them and from the alerts that are shipped.

`python -m tests.support.metric_list` writes them into the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from kuvasz.config.model import MetricsScope
from tests.support import generated, promql

PAGE = generated.DOCS / "metrics.md"
RULES = generated.DOCS.parent / "deploy" / "prometheus" / "rules.yaml"

#: What the samples of a histogram end in, and its own label.
_OF_HISTOGRAMS = ("_bucket", "_count", "_sum")
_BUCKET = "le"


def table() -> str:
    """Return all metrics of kuvasz's own as a table."""
    head = ("Metric", "Kind", "Labels", "Meaning", "Alerts")
    return generated.part("metrics", "tests.support.metric_list", generated.table(head, _rows()))


def families(scope: MetricsScope) -> dict[str, Metric]:
    """Return name as it is asked for -> metric, in the order of the page."""
    found = {}
    for family in text_string_to_metric_families(promql.rendered(scope)):
        if family.name.startswith("kuvasz_") and not family.name.endswith("_created"):
            found[f"{family.name}_total" if family.type == "counter" else family.name] = family
    return found


def _rows() -> Iterator[tuple[str, ...]]:
    alerts = {rule["alert"]: promql.named([rule["expr"]]) for rule in _rules()}
    per_source = families(MetricsScope.PER_SOURCE)
    for name, family in families(MetricsScope.PER_TABLE).items():
        asked = {name, *(name + end for end in _OF_HISTOGRAMS)}
        told = ", ".join(f"`{alert}`" for alert, named in alerts.items() if asked & named)
        mark = "" if _labels(family) == _labels(per_source[name]) else " *"
        yield f"`{name}`{mark}", family.type, ", ".join(_labels(family)), family.documentation, told


def _labels(family: Metric) -> list[str]:
    return [label for label in family.samples[0].labels if label != _BUCKET]


def _rules() -> list[dict]:
    groups = YAML(typ="safe", pure=True).load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


if __name__ == "__main__":
    generated.write(PAGE.name, "metrics", table())
