"""What deploy/ is tried with, in a folder of its own: `make deploy-tools` fetches it; a tool on PATH does as well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "deploy-tools"
PATH = f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"
ENVIRONMENT = os.environ | {"PATH": PATH}

_SCHEMAS = FOLDER / "schemas-venv" / "bin" / "python"


def needs(tool: str) -> pytest.MarkDecorator:
    """Return what leaves a test out where a program is neither fetched nor on PATH.

    Args:
        tool: The program's name.
    """
    found = shutil.which(tool, path=PATH)
    return pytest.mark.skipif(found is None, reason=f"no {tool} here: make deploy-tools says why, or fetches it")


needs_helm, needs_promtool = needs("helm"), needs("promtool")
needs_schemas = pytest.mark.skipif(not _SCHEMAS.is_file(), reason="no schemas of Kubernetes here: make deploy-tools")
needs_monitors = needs("monitors")

#: Strict: a field that the kind does not have is a fault, where a cluster would drop it without a word.
_PROGRAM = """
import json, sys
import kubernetes_validate as kubernetes

asked = json.load(sys.stdin)
found = []
for one in asked["manifests"]:
    try:
        kubernetes.validate(one, asked["version"], strict=True)
    except kubernetes.SchemaNotFoundError as error:
        found.append(error.message)
    except kubernetes.ValidationError as error:
        found.append(f"{one['kind']} {'.'.join(map(str, error.path))}: {error.message}")
json.dump(found, sys.stdout)
"""


def run(*command: str | Path, folder: Path | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program, of those here first.

    Args:
        command: The program, and what it is given.
        folder: Where it runs.
        text: What it reads.
    """
    return subprocess.run(
        [str(one) for one in command], cwd=folder, env=ENVIRONMENT, input=text, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def kubernetes_faults(manifests: Iterable[Mapping[str, Any]], version: str) -> list[str]:
    """Return what the schemas of Kubernetes say against manifests, and which of them they do not know.

    Args:
        manifests: Documents of its kinds.
        version: Of Kubernetes, as 1.33.
    """
    done = run(_SCHEMAS, "-c", _PROGRAM, text=json.dumps({"version": version, "manifests": list(manifests)}))
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def monitor_faults(manifest: Mapping[str, Any]) -> str:
    """Return what Prometheus's operator says against a PodMonitor or a PrometheusRule.

    Args:
        manifest: The document.
    """
    return run("monitors", str(manifest["kind"]), text=json.dumps(manifest)).stderr
