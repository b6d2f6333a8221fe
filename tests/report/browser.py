"""A headless Chromium, spoken to over the pipe of its DevTools protocol: no driver, no package beside the browser."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    """The program's path, or None. QUATT_BROWSER names another, and no other is taken then."""
    given = os.environ.get("QUATT_BROWSER")
    return next(filter(None, map(shutil.which, [given] if given else NAMES)), None)


class Browser:
    """One page. Whatever goes on in it that no report should do is kept in `events`."""

    def __init__(self, program, timeout_s=60):
        self.timeout_s = timeout_s
        self.events = []
        self._next_id = 0
        self._buffer = b""
        self._profile = tempfile.TemporaryDirectory(prefix="quatt-browser-", ignore_cleanup_errors=True)
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()

        def descriptors():  # the protocol's are 3 and 4; both pipes are first moved out of the way
            read, write = os.dup(commands_out), os.dup(answers_in)
            high_read, high_write = os.dup2(read, 63), os.dup2(write, 64)
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        # The sandbox needs a helper or rights that containers lack. What is opened here was made by the test.
        self._process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--remote-debugging-pipe", "--user-data-dir=" + self._profile.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=descriptors)
        os.close(commands_out)
        os.close(answers_in)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()

    def _message(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser ended" if ready else f"no answer of the browser in {self.timeout_s} s")
            self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _take(self, message):
        if "method" in message:
            self.events.append(message)
            if message["method"] == "Page.javascriptDialogOpening":
                self._send("Page.handleJavaScriptDialog", {"accept": True})

    def _send(self, method, params):
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data):]
        return self._next_id

    def call(self, method, **params):
        wanted = self._send(method, params)
        deadline = time.monotonic() + self.timeout_s
        while True:
            message = self._message(deadline)
            if message.get("id") == wanted:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._take(message)

    def open(self, path):
        """Opens a file and waits until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path).replace("%", "%25").replace("#", "%23").replace("?", "%3F"))
        deadline = time.monotonic() + self.timeout_s
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(self._message(deadline))

    def run(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def view(self, width, height=900, theme="light", media="", scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": theme}])

    def scripts(self, on):
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def screenshot(self, path, top=0, height=None):
        """The page as it is laid out, from `top` on; all of it without a height."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": min(height or size["height"], size["height"] - top), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def pdf(self, path):
        data = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def misdeeds(self):
        """Requests for anything but the page, exceptions, messages of the console, and dialogs, since the page was opened."""
        bad = []
        for event in self.events:
            name, params = event["method"], event["params"]
            if name == "Network.requestWillBeSent" and params.get("type") != "Document":
                bad.append("request: " + params["request"]["url"])
            elif name == "Runtime.exceptionThrown":
                bad.append("exception: " + json.dumps(params["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled":
                bad.append("console: " + json.dumps(params["args"]))
            elif name == "Log.entryAdded":
                bad.append("log: " + params["entry"]["text"])
            elif name == "Page.javascriptDialogOpening":
                bad.append("dialog: " + params["message"])
        return bad
