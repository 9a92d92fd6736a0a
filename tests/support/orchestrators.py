"""A real Dagster and a real Airflow, each with kuvasz in a folder of its own: `make orchestrators` installs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Seconds: they start slowly, and Spark with them.
_PATIENCE_S = 900.0


def needs(name: str) -> pytest.MarkDecorator:
    """Return what leaves a test out where an orchestrator is not installed.

    Args:
        name: dagster, or airflow.
    """
    is_here = (ROOT / "build" / name / "ready").is_file()
    return pytest.mark.skipif(not is_here, reason=f"no {name} here: make orchestrators")


def program(heading: str, number: int = 0) -> str:
    """Return a program below a heading of docs/howto.md.

    Args:
        heading: The heading's words.
        number: Which of its programs, from 0.
    """
    page = (ROOT / "docs" / "howto.md").read_text("utf-8")
    _, _, section = page.partition(f"### {heading}\n")
    return str(
        re.findall(r"```python\n(.*?)```", re.split(r"^##", section, flags=re.MULTILINE)[0], re.DOTALL)[number]
    )


def _run(name: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PATH": f"{ROOT / 'build' / name / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_HOME": str(folder), "DAGSTER_DISABLE_TELEMETRY": "1",
        "AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }  # fmt: skip
    # What runs the tests is of another folder, and is no part of what is tried.
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip


def run_dagster(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Have Dagster run the job `load` of a program.

    Args:
        folder: Of the program, and of what Dagster keeps.
        text: The program.
    """
    (folder / "definitions.py").write_text(text)
    return _run("dagster", folder, "dagster", "job", "execute", "-f", "definitions.py", "-j", "load")


def run_airflow(folder: Path, text: str, name: str) -> subprocess.CompletedProcess[str]:
    """Have Airflow run a DAG of a program once.

    Args:
        folder: Of the program, and of what Airflow keeps.
        text: The program.
        name: The DAG's.
    """
    (folder / "dags").mkdir(exist_ok=True)
    (folder / "dags" / f"{name}.py").write_text(text)
    if not (folder / "airflow.db").exists():
        made = _run("airflow", folder, "airflow", "db", "migrate")
        assert made.returncode == 0, made.stdout + made.stderr
    return _run("airflow", folder, "airflow", "dags", "test", name)
