"""Alerts: each asks for metrics that there are, says what to look at, fires where it should and stays silent."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support import promql
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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian: apt install prometheus)")
@pytest.mark.process
def test_promtool_takes_the_rules_and_sees_them_fire_and_stay_silent() -> None:
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", *(file.name for file in TESTS)]):
        done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
