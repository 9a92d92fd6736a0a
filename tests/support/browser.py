"""A headless browser, by the protocol of its developer tools; `None` where the machine has none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import PATIENCE_S

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: In its profile, once it listens: the port, and the path of the browser's own socket.
_PORT = "DevToolsActivePort"

_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip

#: What a screen reader calls an element, and how often Tab is pressed to come to it.
_CALLED = "one => one.getAttribute('aria-label') || (one.labels && one.labels[0] || one).textContent.trim()"
_MOST_TABS = 60


class BrowserPage:
    """A page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []  #: what the page told its console that is an error, refused by its policy or not

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something; dialogs are agreed to meanwhile."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                told = await self._socket.receive_json()
                if told.get("id") == number:
                    assert "error" not in told, told
                    return dict(told["result"])
                await self._hear(told)

    async def _hear(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Page.javascriptDialogOpening":
            agreed = {"id": next(self._numbers), "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            await self._socket.send_json(agreed)
        if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.errors.append(told["params"]["entry"]["text"])
        if told.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(told["params"]["exceptionDetails"]))

    async def run(self, script: str) -> Any:
        """Return the value of an expression."""
        found = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true; while another page comes it may have no value."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(AssertionError):
                    if await self.run(script):
                        return
                await asyncio.sleep(0.05)

    async def go(self, url: str) -> None:
        """Load a page."""
        await self.ask("Page.navigate", url=url)
        await self.until(f"document.readyState === 'complete' && location.href === {url!r}")

    async def look(self, width: int, *, is_dark: bool = False) -> None:
        """Have the window so many pixels wide, and prefer dark colours or light ones."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def have_scripts(self, wanted: bool) -> None:
        """Let pages run their scripts, or not."""
        await self.ask("Emulation.setScriptExecutionDisabled", value=not wanted)

    async def press(self, key: str) -> None:
        """Press a key of the keyboard that writes nothing: Tab, Enter."""
        number = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": number, "nativeVirtualKeyCode": number}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    async def type(self, text: str) -> None:
        """Type a text where the keyboard is."""
        await self.ask("Input.insertText", text=text)

    async def tab_to(self, name: str) -> None:
        """Press Tab until what is called so has the keyboard, and its place is seen."""
        for _ in range(_MOST_TABS):
            await self.press("Tab")
            if await self.run(f"({_CALLED})(document.activeElement)") == name:
                style = await self.run("getComputedStyle(document.activeElement).outlineStyle")
                assert style != "none", f"nobody sees that {name} has the keyboard"
                return
        raise AssertionError(f"the keyboard does not come to {name}")

    async def picture(self, file: Path) -> None:
        """Write what is to be seen as a PNG."""
        found = await self.ask("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def browser_page() -> AsyncIterator[BrowserPage]:
    """A page of a browser that was just started."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        program = await asyncio.create_subprocess_exec(
            PROGRAM, *_ARGUMENTS, f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as client:
                port = await _port(Path(profile))
                async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (target,) = [one for one in await answer.json() if one["type"] == "page"]
                async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = BrowserPage(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.ask(f"{domain}.enable")
                    yield page
        finally:
            program.kill()
            await program.wait()


async def _port(profile: Path) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError, IndexError, ValueError):
                return int((profile / _PORT).read_text().splitlines()[0])
            await asyncio.sleep(0.05)
