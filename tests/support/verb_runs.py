"""Verbs on a test's map, run as the command line does: exit code, and what they print as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kuvasz import cli
from tests.support.lake import LakeFolder

#: From the verb's arguments to its exit code and its JSON.
Run = Callable[..., tuple[int, dict[str, Any]]]


def verb_runs(lake: LakeFolder, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs verbs on the map of a lake."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, "--json", "--config", str(lake.folder / "map.yaml")])
        captured = capsys.readouterr()
        assert not captured.err, captured.err
        return int(end.value.code or 0), json.loads(captured.out)

    return run
