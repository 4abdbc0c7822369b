#!/usr/bin/env python3
"""prediction_cpu.py [SNUG] - small jobs on one thread of this processor: predicted beside measured tokens per second
of processor time.

Processor time, so that other work on the machine disturbs little: the time of a longer run less that of a shorter
one. Each job without a machine file and with the rates that `snug doctor` has measured here (--machine FILE, where it
is given).
"""
import argparse
import json
import os
import random
import resource
import subprocess
import tempfile

JOBS = ["--model smollm2-135m --precision fp32 --seq 256 --micro-batch 1",
        "--model smollm2-135m --precision bf16 --seq 256 --micro-batch 1",
        "--model smollm2-135m --precision fp32 --mode lora --lora-rank 16 --seq 256 --micro-batch 1",
        "--model smollm2-135m --precision bf16 --mode lora --lora-rank 16 --seq 128 --micro-batch 2",
        "--model smollm2-135m --precision bf16 --moments 8bit --seq 128 --micro-batch 2",
        "--model stories-15m --precision fp32 --seq 256 --micro-batch 2",
        "--model stories-15m --precision bf16 --seq 256 --micro-batch 1 --accum 2 --recompute block"]
SHORT, LONG = 1, 4


def run(snug, job, steps, machine, work):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    words = [snug, "train", *job.split(), "--init", "random", "--data", f"{work}/rows.jsonl", "--out", f"{work}/out",
             "--overwrite", "--no-save", "--pack", "off",
             "--device", "cpu", "--threads", "1", "--steps", str(steps),
             "--json"] + (["--machine", machine] if machine else [])
    r = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "XDG_CONFIG_HOME": work})
    assert r.returncode == 0, r.stderr[-500:]
    last = json.loads(r.stdout.splitlines()[-1])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, last["predicted_tokens_per_s"]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("snug", nargs="?", default="./snug")
    a.add_argument("--machine")
    o = a.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/rows.jsonl", "w") as f:
            for _ in range(64):
                f.write(json.dumps({"ids": [random.randrange(30000) for _ in range(256)]}) + "\n")
        print("| job, one thread | tokens per second of processor time | predicted | ratio |\n|---|---|---|---|")
        for job in JOBS:
            w = job.split()
            accum = int(w[w.index("--accum") + 1]) if "--accum" in w else 1
            tokens = int(w[w.index("--seq") + 1]) * int(w[w.index("--micro-batch") + 1]) * accum
            short, _ = run(o.snug, job, SHORT, o.machine, work)
            longer, predicted = run(o.snug, job, LONG, o.machine, work)
            measured = tokens * (LONG - SHORT) / (longer - short)
            print(f"| {job} | {measured:.0f} | {predicted:.0f} | {predicted / measured:.2f} |", flush=True)


main()
