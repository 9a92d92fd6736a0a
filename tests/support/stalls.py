"""Has threads stand still amid what they do, so that others overtake them as they do on a busy machine."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_SECONDS = (0.0005, 0.002, 0.01)


@contextlib.contextmanager
def stalls(seed: int, share: float) -> Iterator[None]:
    """Let a share of the calls and returns of kuvasz's functions stand still, in threads that start meanwhile."""
    dice = random.Random(seed)  # noqa: S311

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event in {"call", "return"} and "/kuvasz/" in frame.f_code.co_filename and dice.random() < share:
            time.sleep(dice.choice(_SECONDS))

    threading.setprofile(profile)
    try:
        yield
    finally:
        threading.setprofile(None)


__all__ = ["stalls"]
