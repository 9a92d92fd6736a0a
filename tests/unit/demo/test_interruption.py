from __future__ import annotations

import os
import signal

import pytest

from kuvasz.demo.interruption import Interruption


def test_the_first_signal_is_noted_and_the_second_raises():
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.wait(5)
        assert interruption.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_nothing_is_raised_once_the_clean_up_has_begun():
    with Interruption() as interruption:
        interruption.close()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.is_set()


def test_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGINT)
    with Interruption():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
