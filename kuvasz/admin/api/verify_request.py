"""What is asked for with `POST /api/verify`: the command, carried out by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from kuvasz.admin.api.asked import BODY
from kuvasz.admin.api.refusal import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.admin.live_map import LiveMap
    from kuvasz.config.load import Loaded
    from kuvasz.config.secrets import Redactor

#: The command's arguments come by its stdin: in its arguments every user of the machine could read what is set there.
_PROGRAM: Final = (sys.executable, "-c", "import json, sys; from kuvasz import cli; cli.main(json.load(sys.stdin))")


class VerificationRequests:
    """Requests for comparisons, one at a time. On the loop.

    Args:
        live_map: The map that runs: its file is what the command reads.
        redact: Takes secrets out.
        program: Carries out the command.
    """

    def __init__(self, live_map: LiveMap, redact: Redactor, program: Sequence[str] = _PROGRAM) -> None:
        self._live_map = live_map
        self._redact = redact
        self._program = program
        self._is_busy = False

    async def answer(self, request: web.Request) -> web.Response:
        """Compare; the answer comes when it is done."""
        loaded = self._live_map.loaded
        if loaded is None or loaded.store is None:
            raise RequestRefused(409, "the map is from no file: no command can read it", "start kuvasz with --config")
        if self._is_busy:
            raise RequestRefused(409, "another comparison is under way", "wait for its end")
        self._is_busy = True
        try:
            code, out, err = await self._run(_arguments(loaded, request[BODY]))
        finally:
            self._is_busy = False
        try:
            # Whatever it ended with: one table that cannot be compared gives its code to all of them.
            reports = json.loads(out)
        except ValueError:
            reports = None
        if reports is None:
            raise self._refused(err)
        return web.json_response(self._redact.clean({"exit_code": code, "reports": reports}))

    async def _run(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr of the command; it ends with whoever waits for it."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._program, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            out, err = await process.communicate(json.dumps(arguments).encode())
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
        return process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def _refused(self, said: str) -> RequestRefused:
        """Return what a command that failed says of itself at its end."""
        told = said[said.rfind("error: ") :].removeprefix("error: ").strip() if "error: " in said else said.strip()
        message, _, hint = self._redact(told).partition("\nhint: ")
        return RequestRefused(409, message or "the comparison ended without a report", hint or None)


def _arguments(loaded: Loaded, given: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the command."""
    assert loaded.store is not None
    found = ["verify", "--json", "--config", loaded.store.given]
    for name, value in loaded.overrides.items():
        found += ["--set", f"{name}={value}"]
    for name in ("table", "sid"):
        if name in given:
            found.append(f"--{name}={given[name]}")
    return [*found, "--fix"] if given.get("fix") else found


__all__ = ["VerificationRequests"]
