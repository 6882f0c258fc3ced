"""A headless Chromium, driven through its debugging pipe with only Python's library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROMIUM"
WAIT_S = 60


def find_browser():
    """The path of a browser: that of $CHROMIUM, or the first one on the PATH; None without one."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page; raises AssertionError if it does not start.

    Attributes:
        errors: exceptions of the page's scripts, and errors that they wrote to the console.
        requests: the addresses that the page requested.
    """

    def __init__(self, path):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._buffer = b""
        self._number = 0
        self.errors, self.requests = [], []
        reader, theirs_out = os.pipe()
        theirs_in, writer = os.pipe()

        def connect():  # Chromium reads from 3 and writes to 4
            high = [os.dup(theirs_in), os.dup(theirs_out)]
            for number, each in zip((3, 4), high):
                os.dup2(each, number)

        self._process = subprocess.Popen(
            [
                path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                f"--user-data-dir={self._folder.name}", "about:blank",
            ],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._reader, self._writer = reader, writer
        self._session = None
        target = self._first_page()
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.view()

    def open(self, page):
        """Open a file and wait until its scripts have run."""
        self.errors.clear()
        self.requests.clear()
        self.send("Page.navigate", url=f"file://{page}")
        self.wait(
            f"document.readyState === 'complete' && location.pathname.endsWith({page.name!r})"
        )

    def _first_page(self):
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            found = self.send("Target.getTargets")["targetInfos"]
            pages = [each["targetId"] for each in found if each["type"] == "page"]
            if pages:
                return pages[0]
            time.sleep(0.05)
        raise AssertionError("the browser opened no page")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._reader)
        os.close(self._writer)
        self._folder.cleanup()

    def send(self, method, **parameters):
        """Call a method of the protocol; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self._note(found)

    def _receive(self):
        until = time.monotonic() + WAIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reader], [], [], max(0, until - time.monotonic()))
            chunk = os.read(self._reader, 2**16) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"])
        if method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def run(self, expression):
        """The value of a JavaScript expression."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition):
        """Wait until a JavaScript expression holds."""
        until = time.monotonic() + WAIT_S
        while not self.run(condition):
            assert time.monotonic() < until, condition
            time.sleep(0.02)

    def view(self, width=1280, height=900, *, scheme="light"):
        """Set the size of the window, and the colours that the user prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def key(self, key):
        """Press and release a key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}
        down = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        if text is not None:
            down["text"] = text
        self.send("Input.dispatchKeyEvent", type="keyDown", **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path):
        """Write the window's contents into a PNG file."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
