"""Debian's Chromium without a window, driven over a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 60.0
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip
END = b"\0"
"""The end of a message."""


class Chromium:
    """A browser with one page.

    Args:
        folder: An empty folder for its profile.
    """

    def __init__(self, folder: Path) -> None:
        read_commands, self._commands = os.pipe()
        self._replies, write_replies = os.pipe()
        # The browser reads commands from descriptor 3 and writes replies to descriptor 4.
        shell = f'exec "$@" 3<&{read_commands} 4>&{write_replies}'
        arguments = [str(PROGRAM), *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *arguments],
            pass_fds=(read_commands, write_replies), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
        os.close(read_commands)
        os.close(write_replies)
        self._session: str | None = None
        self._last, self._unread = 0, b""
        self.requests: list[str] = []
        """The addresses that the page has asked for."""
        self.errors: list[str] = []
        """What the page has logged as an error."""

    def __enter__(self) -> Self:
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.command(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._commands)  # then the browser ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._replies)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The reply to a command."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + END)
        while True:
            reply = self._next()
            if reply.get("id") == self._last:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']['message']}")
                return dict(reply["result"])

    def open(self, address: str, width: int, scheme: str = "light", media: str = "") -> None:
        """Show a page: on a phone if it is narrow, and as it is printed if the medium is "print"."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        self.command(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.command("Page.navigate", url=address)
        end = time.monotonic() + SECONDS
        while self.run("document.readyState + location.href") != f"complete{address}":
            if time.monotonic() > end:
                raise AssertionError(f"{address} is not shown")

    def run(self, expression: str) -> Any:
        """The value of an expression in JavaScript."""
        reply = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise AssertionError(reply["exceptionDetails"])
        return reply["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        text = {"Enter": "\r"}.get(key)
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def screenshot(self, path: Path) -> None:
        """A picture of the whole page."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.command(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip, optimizeForSpeed=True
        )
        path.write_bytes(base64.b64decode(picture["data"]))

    def _next(self) -> dict[str, Any]:
        while END not in self._unread:
            ready, _, _ = select.select([self._replies], [], [], SECONDS)
            part = os.read(self._replies, 1 << 20) if ready else b""
            if not part:
                raise AssertionError("Chromium has ended" if ready else "Chromium does not reply")
            self._unread += part
        message, _, self._unread = self._unread.partition(END)
        found: dict[str, Any] = json.loads(message)
        if found.get("method") == "Network.requestWillBeSent":
            self.requests.append(found["params"]["request"]["url"])
        if found.get("method") == "Log.entryAdded":
            self.errors.append(found["params"]["entry"]["text"])
        return found
