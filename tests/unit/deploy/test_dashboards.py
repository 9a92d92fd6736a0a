"""Dashboards: every query is one that a real page of metrics answers, and Grafana can take the file."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support import deploy_tools, promql

FOLDER = Path(__file__).parents[3] / "deploy" / "grafana"
BOARDS = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(FOLDER.glob("*.json"))}
PANELS = {name: [panel for panel in board["panels"] if panel["type"] != "row"] for name, board in BOARDS.items()}

#: Of Grafana 10.4; newer ones take it and bring it up to theirs.
SCHEMA = 39

#: https://github.com/grafana/grafana/blob/v10.4.0/packages/grafana-data/src/valueFormats/categories.ts
UNITS = {"none", "s", "bytes", "Bps", "percentunit", "ops", "rowsps"}

every_board = pytest.mark.parametrize("name", BOARDS)


def queries(name: str) -> list[str]:
    """Return the queries of a dashboard's panels and variables, as Prometheus gets them where All is chosen."""
    panels = [target["expr"] for panel in PANELS[name] for target in panel["targets"]]
    variables = [
        found[1]
        for one in BOARDS[name]["templating"]["list"]
        if one["type"] == "query" and (found := re.fullmatch(r"label_values\((.*), \w+\)", one["query"]["query"]))
    ]
    return [re.sub(r"\$(job|source|table)\b", ".*", query.replace("$__rate_interval", "1m"))
            for query in (*panels, *variables)]  # fmt: skip


def test_there_is_one_for_each_level() -> None:
    assert list(BOARDS) == ["fleet", "source", "table"]
    assert {board["uid"] for board in BOARDS.values()} == {f"kuvasz-{name}" for name in BOARDS}


@every_board
def test_every_query_is_answered_by_a_page_of_metrics(name: str) -> None:
    page = promql.page()
    assert [fault for query in queries(name) for fault in promql.faults(query, page)] == []


@every_board
def test_a_query_uses_the_variables_of_its_dashboard(name: str) -> None:
    known = {one["name"] for one in BOARDS[name]["templating"]["list"]}
    used = set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps([PANELS[name], BOARDS[name]["templating"]])))
    assert used == known


@every_board
def test_every_panel_says_what_it_shows_and_in_which_unit(name: str) -> None:
    for panel in PANELS[name]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert {json.dumps(target["datasource"]) for target in panel["targets"]} == {json.dumps(panel["datasource"])}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@every_board
def test_panels_have_numbers_and_places_of_their_own(name: str) -> None:
    board = BOARDS[name]
    assert (board["id"], board["schemaVersion"]) == (None, SCHEMA)
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    places = [panel["gridPos"] for panel in board["panels"]]
    assert [place for place in places if place["x"] + place["w"] > 24] == []
    assert [pair for pair in itertools.combinations(places, 2) if _overlap(*pair)] == []


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


@every_board
def test_a_link_leads_to_one_of_them(name: str) -> None:
    links = [link["url"] for panel in PANELS[name] for link in panel["fieldConfig"]["defaults"].get("links", [])]
    assert {re.split(r"[/?]", link)[2] for link in links} <= {board["uid"] for board in BOARDS.values()}


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("rate(kuvasz_row_total[5m])", "no sample of kuvasz_row_total[]"),
        ('kuvasz_lag_seconds{table="shop.items"}', "kuvasz_lag_seconds has no label table"),
        ('kuvasz_source_state{state="broken"}', "no sample of kuvasz_source_state[('state', '=', 'broken')]"),
        ("sum by (op, le) (rate(kuvasz_rows_total[5m] offset 1d)) > 1e5", "no label le in "),
    ],
)
def test_a_wrong_query_is_seen(query: str, fault: str) -> None:
    assert promql.faults(query, promql.page())[0].startswith(fault)


def test_what_kuvasz_tells_is_on_one_of_them() -> None:
    shown = promql.named(query for name in BOARDS for query in queries(name))
    told = {name for name in promql.page() if name.startswith("kuvasz_")}
    # Parts of the histogram that no quantile is made of.
    assert told - shown == {"kuvasz_commit_duration_seconds_sum", "kuvasz_commit_duration_seconds_created"}


@deploy_tools.needs_promtool
def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": "of_a_panel", "expr": query, "labels": {"board": name, "number": str(number)}}
             for name in BOARDS for number, query in enumerate(queries(name))]  # fmt: skip
    with (tmp_path / "rules.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump({"groups": [{"name": "panels", "rules": rules}]}, file)
    done = deploy_tools.run("promtool", "check", "rules", tmp_path / "rules.yaml")
    assert (done.returncode, f"{len(rules)} rules found" in done.stdout) == (0, True), done.stderr
