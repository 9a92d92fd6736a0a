from __future__ import annotations

import pytest

from kuvasz.route import many, scan
from kuvasz.source import warmup
from kuvasz.source.drain import kernel, together


def test_a_stream_finds_its_kernels_loaded():
    assert warmup.warm() == 1
    for one in (kernel.drain_one, together._take, many._read, scan.classify, scan.group, scan.gather):
        assert one.signatures


def test_without_the_compiled_drain_there_is_less_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "libpq_functions", lambda _: None)
    assert warmup.warm() == 1
