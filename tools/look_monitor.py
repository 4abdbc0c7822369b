#!/usr/bin/env python3
"""look_monitor.py [--out DIR] [--snug FILE] - looks at the monitor's page in Chromium while a job runs, and after it
was killed.

Makes a small model, trains it under a name that would do harm as markup, serves the monitor with the readings of the
library that tests use, and opens the page in light and dark, at the width of a desk and of a phone. Fails on errors on
the console, on anything fetched from elsewhere, on a page wider than its window, on a name that became markup,
where the job
is not drawn or its cursor stands still, and where its death is not told. Screenshots go to DIR (build/look)."""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

from look import Browser, SIZES

NAME = "<img src=x onerror=alert(1)><b>run</b>"
SHAPE = {"num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 704,
         "vocab_size": 4000}


class Looker:
    def __init__(self, browser, url, out):
        self.b, self.url, self.out, self.bad = browser, url, out, []

    def expect(self, ok, what):
        if not ok:
            self.bad.append(what)

    def until(self, expression, what, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.b.value(expression):
                return
            time.sleep(0.2)
        self.bad.append(what)

    def check_events(self, where):
        for e in self.b.events:
            method, p = e.get("method"), e.get("params", {})
            if method == "Runtime.exceptionThrown":
                self.bad.append(f"{where}: {p['exceptionDetails']['exception'].get('description')}")
            if method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                self.bad.append(f"{where}: {p['entry']['text']}")
            if method == "Network.requestWillBeSent" and not p["request"]["url"].startswith(self.url):
                self.bad.append(f"{where}: fetched {p['request']['url'][:100]}")

    def look_at(self, size, dark):
        name = f"monitor-{size}-{'dark' if dark else 'light'}"
        self.b.open(self.url, size, dark)
        self.until("document.querySelectorAll('#jobs svg.chart').length>=2", f"{name}: the job's charts are not drawn")
        cursor = "document.querySelector('.cursor').getAttribute('x1')"
        before = self.b.value(cursor)
        self.until(f"{cursor}!=='{before}'", f"{name}: the cursor stands still")
        title = self.b.value("document.querySelector('#jobs h2').textContent")
        self.expect(title.startswith(NAME), f"{name}: the name is not shown")
        self.expect(self.b.value("!document.querySelector('main img, main b')"), f"{name}: a name became markup")
        wide = self.b.value("document.documentElement.scrollWidth-innerWidth")
        self.expect(wide <= 0, f"{name}: {wide} pixels wider than the window")
        self.b.screenshot(self.out / f"{name}.png")
        self.check_events(name)

    def look_at_death(self):
        self.until("!!document.querySelector('#jobs .tag.no')", "the job's death is not told")
        self.b.screenshot(self.out / "monitor-died.png")


def start_job(snug, folder, env):
    sets = [w for k, v in SHAPE.items() for w in ("--set", f"{k}={v}")]
    subprocess.run([snug, "init", "--model", "llama-3.2-1b", "--out", "m", *sets], cwd=folder, env=env, check=True,
                   capture_output=True)
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as f:
        for _ in range(64):
            f.write(json.dumps({"ids": [random.randrange(1, 400) for _ in range(60)]}) + "\n")
    return subprocess.Popen([snug, "train", "--model", "m", "--data", "rows.jsonl", "--out", "run", "--run-name", NAME,
                             "--seq", "64",
                             "--steps", "100000", "--log-steps", "1", "--eval-steps", "20", "--val-split", "0.1",
                             "--micro-batch", "2", "--accum", "3", "--threads", "1", "--device", "cpu"], cwd=folder,
                            env=env, stderr=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL)


def start_server(snug, env):
    server = subprocess.Popen([snug, "monitor", "--serve", "any", "--interval", "0.5"], env=env,
                              stderr=subprocess.PIPE, text=True)
    return server, re.search(r"http://\S+", server.stderr.readline()).group()


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--out", default="build/look")
    words.add_argument("--snug", default="./snug")
    words.add_argument("--fakes", default="build/cuda0-debug0")
    words.add_argument("--browser", default="chromium")
    o = words.parse_args()
    out = pathlib.Path(o.out)
    out.mkdir(parents=True, exist_ok=True)
    snug = os.path.abspath(o.snug)
    with tempfile.TemporaryDirectory(prefix="look-") as name:
        folder = pathlib.Path(name)
        (folder / "jobs").mkdir(mode=0o700)
        env = dict(os.environ, SNUG_JOBS=str(folder / "jobs"), SNUG_NVML=os.path.abspath(f"{o.fakes}/fake_nvml.so"))
        job = start_job(snug, folder, env)
        server, url = start_server(snug, env)
        browser = Browser(o.browser)
        looker = Looker(browser, url, out)
        try:
            for size in SIZES:
                for dark in (False, True):
                    looker.look_at(size, dark)
            job.kill()
            job.wait()
            looker.look_at_death()
        finally:
            browser.close()
            job.kill()
            server.terminate()
            server.wait()
    for line in looker.bad:
        print("look:", line)
    print("monitor:", "looked at" if not looker.bad else f"{len(looker.bad)} faults")
    return bool(looker.bad)


if __name__ == "__main__":
    raise SystemExit(main())
