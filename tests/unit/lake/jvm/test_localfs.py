"""The plain local file system of the driver's JVM."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JError

from kuvasz.lake.jvm import localfs


def test_a_jvm_that_cannot_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Jvm:
        def __getattr__(self, name: str) -> object:
            raise Py4JError(f"no {name}")

    with caplog.at_level(logging.DEBUG, "kuvasz.lake.jvm.localfs"):
        assert not localfs.install(Jvm(), None)
