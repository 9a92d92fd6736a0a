from __future__ import annotations

from kuvasz.route import scan
from kuvasz.source import drain, warmup


def test_a_stream_finds_its_kernels_loaded():
    assert warmup.warm() == 1
    for kernel in (drain._drain, scan.classify, scan.group, scan.gather):
        assert kernel.signatures
