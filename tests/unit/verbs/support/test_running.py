"""What a running kuvasz tells becomes files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.config.model import Config
from kuvasz.verbs import remote
from kuvasz.verbs.remote import NotRunning
from kuvasz.verbs.support import running
from tests.support.maps import SHOP, loaded


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, "server: {address: '127.0.0.1:0'}\n" + SHOP).config


def test_stacks_and_events_are_written_for_people(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "status": {"phase": "running"},
        "events": [{"event": "copied"}, {"event": "parked"}],
        "threads": [{"thread": "a", "stack": ["x.py:1 f", "x.py:2 g"]}],
        "tasks": [{"task": "b", "stack": ["y.py:3 h"], "waits_for": "Future"}, {"task": "c", "stack": []}],
    }
    monkeypatch.setattr(remote, "report", lambda _: told)
    assert running.report(config).files == {
        "status.json": {"phase": "running"},
        "events.txt": '{"event": "copied"}\n{"event": "parked"}\n',
        "threads.txt": "thread a\n  x.py:1 f\n  x.py:2 g\n\n",
        "tasks.txt": "task b\n  y.py:3 h\n  waits for a Future\n\ntask c\n\n",
    }


def test_where_none_runs_it_says_so(config: Config) -> None:
    for part in (running.report, running.metrics):
        with pytest.raises(NotRunning, match="no kuvasz runs"):
            part(config)
