from __future__ import annotations

import pytest

from kuvasz.route import scan
from kuvasz.source import warmup
from kuvasz.source.drain import kernel


def test_a_stream_finds_its_kernels_loaded():
    assert warmup.warm() == 1
    for one in (kernel._drain, scan.classify, scan.group, scan.gather):
        assert one.signatures


def test_without_the_compiled_drain_there_is_less_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "libpq_functions", lambda _: None)
    assert warmup.warm() == 1
