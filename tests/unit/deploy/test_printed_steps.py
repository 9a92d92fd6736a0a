"""Commands and files for what kuvasz is deployed with, as docs/install.md, platform.md and operating.md print them.

Whatever wants a registry, a cluster or a machine that systemd has started is not carried out; what it is given is.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support import deploy_tools

ROOT = Path(__file__).parents[3]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("install", "platform", "operating")}

needs_helm, needs_promtool = deploy_tools.needs_helm, deploy_tools.needs_promtool
needs_logrotate = deploy_tools.needs("logrotate")

#: In the place of programs that would change the machine.
_STAND_INS = """
sudo() { "$@"; }
useradd() { test "$1" = --system; }
systemctl() { test -f "$ROOT/etc/systemd/system/kuvasz.service"; }
journalctl() { test "$*" = "-u kuvasz -f"; }
"""


def shown(page: str, language: str, first: str) -> str:
    """Return the example of a page that begins so."""
    (found,) = re.findall(rf"```{language}\n({re.escape(first)}.*?)```", PAGES[page], re.DOTALL)
    return str(found)


def commands(page: str, program: str) -> list[list[str]]:
    """Return the commands of a program in the examples of a page, each as its words."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(f"{program} ")]


def ran(*command: str | Path, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in command], cwd=folder, env={**deploy_tools.ENVIRONMENT, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.process
def test_the_unit_map_and_variables_are_put_where_the_unit_looks(tmp_path: Path) -> None:
    """In a folder that stands for the machine's root."""
    for name in ("map.yaml", "environment"):
        (tmp_path / name).write_text("…")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    steps = shown("install", "sh", "sudo useradd").replace(" /etc/", ' "$ROOT"/etc/')
    done = ran("bash", "-ec", _STAND_INS + steps, folder=tmp_path, ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    unit = (tmp_path / "etc/systemd/system/kuvasz.service").read_text("utf-8")
    for file in re.findall(r"/etc/kuvasz/[\w.]+", unit):
        assert (tmp_path / file.removeprefix("/")).is_file(), file
    assert (tmp_path / "etc/kuvasz/environment").stat().st_mode & 0o777 == 0o600


def test_what_docker_and_apt_are_given_is_there() -> None:
    given = [one for page in ("install", "platform") for name in ("docker", "sudo") for one in commands(page, name)]
    named = [word for words in given for word in words if word.startswith("deploy/")]
    assert {"deploy/compose.yaml", "deploy/kuvasz.service"} <= set(named)
    assert [name for name in named if not (ROOT / name).exists()] == []


@needs_helm
@pytest.mark.process
def test_helm_renders_what_is_to_be_installed(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text((ROOT / "config" / "map.yaml").read_text("utf-8"))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    found = commands("platform", "helm")
    assert [one[1:4] for one in found] == [
        ["install", name, "deploy/helm/kuvasz"] for name in ("shop", "read", "apply", "blue")
    ]
    for one in found:
        done = ran("helm", "template", *one[2:], "--kube-version", "1.33.0", folder=tmp_path)
        assert (done.returncode, "kind: StatefulSet" in done.stdout) == (0, True), done.stderr


@needs_promtool
@pytest.mark.process
def test_prometheus_takes_its_part(tmp_path: Path) -> None:
    text = shown("platform", "yml", "rule_files:")
    (rules,) = re.findall(r"rule_files: \[(.*?)\]", text)
    (tmp_path / "prometheus.yaml").write_text(text.replace(rules, str(ROOT / "deploy/prometheus/rules.yaml")))
    done = ran("promtool", "check", "config", tmp_path / "prometheus.yaml")
    assert (done.returncode, "rules found" in done.stdout) == (0, True), done.stdout + done.stderr


@needs_promtool
@pytest.mark.process
def test_the_rules_are_tested_as_the_page_says() -> None:
    (command,) = re.findall(r"`(promtool test rules [^`]*)`", PAGES["platform"])
    done = ran(*shlex.split(command), folder=ROOT / "deploy" / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_logrotate
@pytest.mark.process
def test_the_log_is_rotated(tmp_path: Path) -> None:
    (tmp_path / "kuvasz.log").write_text("a line\n")
    text = shown("operating", "text", "/var/log/kuvasz/kuvasz.log {").replace("/var/log/kuvasz", str(tmp_path))
    rule = tmp_path / "rule"
    rule.write_text(text.replace("{", f"{{\n    su {os.getuid()} {os.getgid()}", 1))
    rule.chmod(0o644)
    for _ in range(2):
        done = ran("logrotate", "--force", "--state", tmp_path / "state", rule)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "kuvasz.log.1").read_text() == "a line\n"
