"""Drives a real Chromium by its DevTools protocol: one WebSocket and a dozen commands.

aiohttp is here anyway, so this needs no dependency; Playwright would bring a Node runtime and a patched
protocol for what the tests use of it: go, ask, press, look, and what the console said.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    *("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb"),
    *("--hide-scrollbars", "--font-render-hinting=none", "--disable-background-timer-throttling"),
)


@asynccontextmanager
async def chromium():
    """A browser with a profile of its own; gives a function that opens a tab. Everything is gone afterwards."""
    profile = tempfile.mkdtemp(prefix="chromium-")
    flags = [*_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to run as root otherwise
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *flags, "about:blank", stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    try:
        address = await _address(Path(profile) / "DevToolsActivePort")
        async with ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            wire = Wire(socket)
            try:
                yield wire.tab
            finally:
                await wire.close()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _address(file: Path) -> str:
    for _ in range(600):
        if len(lines := _lines(file)) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        await asyncio.sleep(0.05)
    raise TimeoutError("Chromium did not say where it listens")


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


class Wire:
    """Commands out, answers and events in."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._count += 1
        answer = self._waiting[self._count] = asyncio.get_running_loop().create_future()
        command = {"id": self._count, "method": method, "params": params}
        await self._socket.send_json(command | ({"sessionId": session} if session else {}))
        return await asyncio.wait_for(answer, 60)

    async def tab(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Tab:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = self._tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.size(width, height)
        await tab.theme(dark)
        await tab.go(url)
        return tab

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            news = json.loads(message.data)
            if (answer := self._waiting.pop(news.get("id"), None)) and not answer.done():
                if "error" in news:
                    answer.set_exception(RuntimeError(news["error"]["message"]))
                else:
                    answer.set_result(news["result"])
            elif tab := self._tabs.get(news.get("sessionId", "")):
                tab.heard(news["method"], news["params"])

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Tab:
    """One page. `complaints` is what went wrong in it: exceptions, errors on the console, violated policies.

    One is expected and left out: Plotly brings a style sheet for maps, which nothing here draws and the policy blocks.
    """

    def __init__(self, wire: Wire, session: str, target: str) -> None:
        self._wire = wire
        self._session = session
        self._target = target
        self.complaints: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._wire.call(method, self._session, **params)

    async def close(self) -> None:
        await self._wire.call("Target.closeTarget", targetId=self._target)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            complaint = f"{params['entry']['text']} {params['entry'].get('url', '')}"
            if not (complaint.endswith("/plotly.min.js") and "inline style" in complaint):
                self.complaints.append(complaint)

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def size(self, width: int, height: int) -> None:
        phone = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )

    async def theme(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = 20) -> None:
        """Waits until the expression is true. Only its truth is asked for: an element as a value is a whole tree."""
        for _ in range(int(seconds / 0.05)):
            try:
                if await self.ask(f"Boolean({expression})"):
                    return
            except RuntimeError:
                pass  # the page is not that far yet
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {expression}; the page complained: {self.complaints}")

    async def texts(self, selector: str) -> list[str]:
        """What the elements that match say, one string each, without the white space around it."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return await self.ask(f"{found}.map((e) => e.innerText.replace(/\\s+/g, ' ').trim())")

    async def press(self, key: str, code: int = 0) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        facts = {"key": key, "windowsVirtualKeyCode": code or {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **facts)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    async def tree(self) -> list[tuple[str, str]]:
        """What a screen reader is told: (role, name) of every node that is not ignored."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    async def shoot(self, whole: bool = True) -> bytes:
        """A PNG of what is in view, or of the whole page."""
        picture = await self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(await self._clip(whole)))
        return base64.b64decode(picture["data"])

    async def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
