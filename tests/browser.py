"""Debian's Chromium without a screen, with WebGL in software, driven by its debugging protocol.

https://chromedevtools.github.io/devtools-protocol/; messages go through two pipes, so that no port
is open and no driver is needed.
"""

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-pipe",
)
PATIENCE = 120.0  # seconds


class Browser:
    """A tab of a browser, and what its pages complained of and asked for."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._read, self._last = b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and returns its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._last:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(
        self, page: Path | str, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Opens the page of a file or an address, waits until it is loaded, and forgets what was
        noted of pages before.
        """
        self.complaints, self.requests, self._events = [], [], []
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **shape)
        self.ask("Emulation.setScrollbarsHidden", hidden=True)  # they take of the width
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._note(self._next())

    def run(self, script: str) -> Any:
        """Returns the value of an expression on the page; of a promise, what it comes to."""
        found = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector: str, number: int = 0) -> None:
        """Clicks with the mouse into the middle of an element, scrolled into view."""
        place = self.run(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{number}];"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        at = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, **at)

    def picture(self, path: Path, whole: bool = False, **options: Any) -> None:
        """Writes a PNG of the visible part, or of the `whole` page."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole, **options)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._out], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            got = os.read(self._out, 1 << 20)
            assert got, "the browser ended"
            self._read += got
        line, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        """Keeps what a page complains of, and the addresses that it asks for."""
        self._events.append(event)
        told = event.get("params", {})
        match event["method"]:
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "assert"):
                self.complaints.append(json.dumps(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.complaints.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts Chromium with a profile of its own in `folder`, and ends it."""
    (theirs_in, into), (out, theirs_out) = os.pipe(), os.pipe()
    # It reads from 3 and writes to 4.
    shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(into, out)
    finally:
        process.terminate()
        process.wait(20)
        os.close(into)
        os.close(out)
