"""Alerts: each asks for metrics that there are, says what to look at, fires where it should and stays silent."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support import deploy_tools, promql
from tests.support.commands import inline, is_taken

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
TESTS = sorted(FOLDER.glob("*_test.yaml"))
RULES = [
    rule
    for group in YAML(typ="safe", pure=True).load((FOLDER / "rules.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])


@pytest.fixture(scope="module")
def page() -> dict[str, list[dict[str, str]]]:
    return promql.page()


@every_rule
def test_an_alert_asks_for_what_kuvasz_tells(rule: dict, page: dict[str, list[dict[str, str]]]) -> None:
    assert promql.faults(rule["expr"], page) == []


@every_rule
def test_an_alert_says_how_bad_it_is_what_status_shows_and_what_to_do(rule: dict) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["for"]
    told = rule["annotations"]
    assert told.keys() == {"summary", "description", "runbook"}
    assert "`kuvasz status`" in told["description"]
    assert [arguments for arguments in inline(told["description"]) if not is_taken(arguments)] == []


@every_rule
def test_an_alert_leads_to_a_section_of_the_docs(rule: dict) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_rule
def test_an_alert_names_only_labels_that_its_samples_have(rule: dict, page: dict) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    known = {label for metric in promql.named([rule["expr"]]) for sample in page[metric] for label in sample}
    assert named <= known


@every_rule
def test_an_alert_is_seen_to_fire(rule: dict) -> None:
    assert any(f'"{rule["alert"]}"' in file.read_text("utf-8") for file in TESTS)


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) > 20
    assert len(names) == len(set(names))


@deploy_tools.needs_promtool
@pytest.mark.process
def test_promtool_takes_the_rules_and_sees_them_fire_and_stay_silent() -> None:
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", *(file.name for file in TESTS)]):
        done = deploy_tools.run("promtool", *arguments, folder=FOLDER)
        assert done.returncode == 0, done.stdout + done.stderr


@deploy_tools.needs_promtool
@every_rule
@pytest.mark.process
def test_an_alert_that_never_fires_is_seen(rule: dict, tmp_path: Path) -> None:
    """The tests of the rules look at each of them: one that asks for the opposite fails them."""
    text = (FOLDER / "rules.yaml").read_text("utf-8")
    document = YAML(typ="safe", pure=True).load(text)
    for group in document["groups"]:
        for one in group["rules"]:
            if one["alert"] == rule["alert"]:
                one["expr"] = "vector(1) == 2"
    with (tmp_path / "rules.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(document, file)
    named = f'"{rule["alert"]}"'
    for test in TESTS:
        shutil.copy(test, tmp_path)
    files = [test.name for test in TESTS if named in test.read_text("utf-8")]
    done = deploy_tools.run("promtool", "test", "rules", *files, folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert rule["alert"] in done.stdout + done.stderr
