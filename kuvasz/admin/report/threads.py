"""Where the threads and the event loop's tasks of this process are: files, lines and functions, never a value."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any


def threads() -> list[dict[str, Any]]:
    """Return each thread's name and stack, the innermost call last."""
    named = {thread.ident: thread for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        thread = named.get(ident)
        name = f"{ident}, not one of Python's" if thread is None else thread.name
        found.append({"thread": name, "stack": [*_calls(frame)][::-1]})
    return found


def tasks() -> list[dict[str, Any]]:
    """Return name and stack of each task of the running loop, the innermost call last, and what it waits for."""
    return [_task(task) for task in asyncio.all_tasks()]


def _task(task: asyncio.Task[Any]) -> dict[str, Any]:
    stack: list[str] = []
    awaited: object = task.get_coro()
    while (code := _code(awaited)) is not None:
        stack.append(_place(code, _line(awaited)))
        awaited = _awaited(awaited)
    # Nothing else is said of what is waited for: the text of a future has its result.
    return {"task": task.get_name(), "stack": stack, "waits_for": None if awaited is None else type(awaited).__name__}


def _calls(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield _place(frame.f_code, frame.f_lineno)
        frame = frame.f_back


def _code(awaited: object) -> CodeType | None:
    """Return the code of a coroutine, a generator or an asynchronous generator; None of anything else."""
    code = _one_of(awaited, "cr_code", "gi_code", "ag_code")
    return code if isinstance(code, CodeType) else None


def _line(awaited: object) -> int:
    frame = _one_of(awaited, "cr_frame", "gi_frame", "ag_frame")
    return frame.f_lineno if isinstance(frame, FrameType) else 0


def _awaited(awaited: object) -> object:
    return _one_of(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _one_of(value: object, *names: str) -> object:
    return next((getattr(value, name) for name in names if hasattr(value, name)), None)


def _place(code: CodeType, line: int | None) -> str:
    return f"{code.co_filename}:{line} {code.co_qualname}"


__all__ = ["tasks", "threads"]
