#!/usr/bin/env python3
"""look.py PAGE.html... [--out DIR] - looks at pages in Chromium as a reader would; fails on what a reader should not
meet.

Every page is opened as a file in light and dark, at the width of a desk and of a phone, without scripts, and on
paper. It fails on errors on the console, on anything fetched from outside, on a page wider than its window; on a
plan's page also when the picture does not answer to the pointer, a table does not sort or the theme does not change.
Screenshots go to DIR. Speaks the browser's debugging protocol over a pipe, so that nothing but Chromium and Python is
needed.
"""
import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SIZES = {"desk": (1200, 900, False), "phone": (390, 844, True)}


class Browser:
    """A headless Chromium with one tab; commands and events are JSON texts that end in a NUL byte (fds 3 and 4)."""

    def __init__(self, binary):
        self.profile = tempfile.mkdtemp(prefix="look-")
        theirs_in, self.to = os.pipe()
        self.come, theirs_out = os.pipe()
        flags = [binary, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--user-data-dir=" + self.profile, "about:blank"]
        wiring = f"exec 3<&{theirs_in} 4>&{theirs_out}; exec \"$@\""
        self.process = subprocess.Popen(["bash", "-c", wiring, "bash", *flags], pass_fds=(theirs_in, theirs_out),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.count, self.rest, self.events, self.session = 0, b"", [], None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.come, 1 << 20)
            if not more:
                raise SystemExit("look: the browser ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") != self.count:
                self.events.append(answer)
            elif "error" in answer:
                raise SystemExit(f"look: {method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def wait(self, method):
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.receive())

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"look: {expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def open(self, url, size, dark=False, scripts=True):
        width, height, phone = SIZES[size]
        self.events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def screenshot(self, path, whole=True):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole,
                         **({"clip": self.whole_page()} if whole else {}))
        path.write_bytes(base64.b64decode(shot["data"]))

    def whole_page(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1}

    def move(self, x, y, kind="mouseMoved", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.move(x, y, kind, button="left", clickCount=1)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Look:
    def __init__(self, browser, page, out):
        self.b, self.page, self.out, self.bad = browser, page, out, []
        self.url = page.resolve().as_uri()

    def expect(self, ok, what):
        if not ok:
            self.bad.append(what)

    def shot(self, name, **how):
        self.b.screenshot(self.out / f"{self.page.stem}-{name}.png", **how)

    def check_events(self, where):
        for e in self.b.events:
            method, p = e.get("method"), e.get("params", {})
            if method == "Runtime.exceptionThrown":
                self.bad.append(f"{where}: {p['exceptionDetails']['exception'].get('description')}")
            if method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning"):
                self.bad.append(f"{where}: console: {p['args']}")
            if method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                self.bad.append(f"{where}: {p['entry']['text']}")
            if method == "Network.requestWillBeSent" and p["request"]["url"] != self.url.split("#")[0]:
                self.bad.append(f"{where}: fetched {p['request']['url'][:100]}")

    def centre(self, selector, x=0.5, y=0.5):
        self.b.value(f"document.querySelector('{selector}').scrollIntoView({{block:'center'}});"
                     "new Promise(done=>requestAnimationFrame(()=>requestAnimationFrame(done)))")  # it has scrolled
        box = self.b.value("(r=>[r.left,r.top,r.width,r.height])"
                           f"(document.querySelector('{selector}').getBoundingClientRect())")
        return box[0] + x * box[2], box[1] + y * box[3]

    def look_at(self, size, dark):
        name = f"{size}-{'dark' if dark else 'light'}"
        self.b.open(self.url, size, dark)
        wide = self.b.value("document.documentElement.scrollWidth-innerWidth")
        self.expect(wide <= 0, f"{name}: {wide} pixels wider than the window")
        self.shot(name)
        self.check_events(name)

    def tip(self):
        return self.b.value("(t=>t.hidden?'':t.textContent)(document.getElementById('tip'))")

    def a_tensor(self):
        """Where on the arena's drawing a large one is that does not lie at its edge."""
        return self.b.value("(d=>(all=>all.find(p=>p[1]>.1&&p[1]<.95)||all[0])"
                            "(d.tensors.map(t=>[(t.birth+t.death+1)/2/d.steps,1-(t.offset+t.bytes/2)/d.arena])))"
                            "(JSON.parse(document.getElementById('picture-data').textContent))")

    def tap(self):
        self.b.open(self.url, "phone")
        x, y = self.centre("#map", *self.a_tensor())
        self.b.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.expect("born at step" in self.tip(), "the arena does not answer to a tap")
        self.shot("tap", whole=False)

    def point(self):
        self.b.move(*self.centre("#stack", 0.6, 0.8))
        self.expect("step " in self.tip() and "alive" in self.tip(), "the areas do not answer to the pointer")
        self.shot("step", whole=False)
        self.b.move(*self.centre("#map", *self.a_tensor()))
        self.expect("born at step" in self.tip(), "the arena does not answer to the pointer")
        self.expect(self.b.value("!document.querySelector('.hit').hidden"), "no tensor is marked")
        self.shot("tensor", whole=False)

    def zoom(self):
        from_x, y = self.centre("#stack", 0.4)
        to_x, _ = self.centre("#stack", 0.6)
        self.b.move(from_x, y, "mousePressed", button="left", clickCount=1)
        self.b.move(to_x, y, button="left")
        self.b.move(to_x, y, "mouseReleased", button="left", clickCount=1)
        self.expect(not self.b.value("document.getElementById('range').textContent").startswith("Steps 0 to"),
                    "drag: no zoom")
        self.shot("zoom", whole=False)
        self.b.click(*self.centre("[data-zoom=all]"))
        self.expect(self.b.value("document.getElementById('range').textContent").startswith("Steps 0 to"),
                    "no way back")

    def sort(self):
        column = "table.sort th button"
        sorts = f"document.querySelector('{column}').parentNode.getAttribute('aria-sort')"
        self.b.value("document.querySelectorAll('details').forEach(d=>d.open=true)")
        for want in ("ascending", "descending"):
            self.b.click(*self.centre(column))
            self.expect(self.b.value(sorts) == want, f"a click does not sort: {want}")

    def change_theme(self):
        ground = "getComputedStyle(document.body).backgroundColor"
        before = self.b.value(ground)
        self.b.click(*self.centre("#theme"))
        self.expect(self.b.value(ground) != before, "the theme does not change")
        self.b.value("localStorage.clear()")

    def without_scripts(self):
        self.b.open(self.url, "desk", scripts=False)
        self.shot("noscript")
        self.b.call("Emulation.setScriptExecutionDisabled", value=False)

    def print_it(self):
        pdf = self.b.call("Page.printToPDF", printBackground=True)
        (self.out / f"{self.page.stem}.pdf").write_bytes(base64.b64decode(pdf["data"]))

    def run(self):
        for size in SIZES:
            for dark in (False, True):
                self.look_at(size, dark)
        self.b.open(self.url, "desk")
        loaded = self.b.value("performance.getEntriesByType('navigation')[0].loadEventEnd")
        self.change_theme()
        if self.b.value("!!document.getElementById('picture-data')"):
            self.point()
            self.zoom()
            self.sort()
            self.check_events("used")
            self.tap()
        self.check_events("used")
        self.b.open(self.url, "desk")
        self.print_it()
        self.without_scripts()
        size = self.page.stat().st_size
        print(f"look: {self.page.name}: {size:,} bytes, loaded in {loaded:.0f} ms; "
              f"{'; '.join(self.bad) or 'nothing wrong'}")
        return not self.bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("look"))
    args = parser.parse_args()
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not binary:
        raise SystemExit("look: there is no Chromium here; on Debian: apt-get install chromium")
    args.out.mkdir(parents=True, exist_ok=True)
    browser = Browser(binary)
    try:
        good = [Look(browser, page, args.out).run() for page in args.pages]
    finally:
        browser.close()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
