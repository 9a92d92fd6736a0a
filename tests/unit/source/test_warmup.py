from __future__ import annotations

import pytest

from kuvasz.route import scan
from kuvasz.source import drain, warmup


def test_a_stream_finds_its_kernels_loaded():
    assert warmup.warm() == 1
    for kernel in (drain._drain, scan.classify, scan.group, scan.gather):
        assert kernel.signatures


def test_without_the_compiled_drain_there_is_less_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_libpq_functions", lambda _: None)
    assert warmup.warm() == 1
