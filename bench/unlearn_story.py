#!/usr/bin/env python3
"""Unlearning on TOFU from end to end: a small model learns English, memorises TOFU in a logged run, and every method of
`snug unlearn` removes forget01, forget05 and forget10; each result is compared with a model trained without them.

    bench/unlearn_story.py --snug ./snug --tofu DIR --tokenizer DIR --text FILE... --work DIR [--device cuda] >> RESULTS
    bench/unlearn_story.py --table RESULTS                     the tables of docs/unlearning.md
    ... --runs adamw --splits forget10 forget05:rmu,pdu,undial --updates 20         a part of it: those methods alone

A JSON line for every result goes to standard output; what the program says goes to WORK/*.log. The last 400 rows of
retain90 are in no training: membership tests hold them against the forgotten ones. --quick: one split, fewer epochs,
for a look on a CPU.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time

LOSSES = "gradascent graddiff npo simnpo dpo wga satimp ceu undial pdu rmu".split()
SPLITS = {"forget01": 40, "forget05": 200, "forget10": 400}
HOLDOUT = 400
SEQ, BATCH = 128, 32
SHAPE = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
         "intermediate_size": 768, "vocab_size": 50304}


def rows_of(path):
    text = open(path, encoding="utf-8").read()
    if text.lstrip().startswith("["): return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line]


QUICK_SHAPE = SHAPE | {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
                       "intermediate_size": 128}


class Story:
    def __init__(self, a):
        self.a = a
        self.machine = machine(a)
        self.commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True,
                                     text=True).stdout.strip()
        os.makedirs(a.work, exist_ok=True)

    def path(self, name):
        return os.path.join(self.a.work, name)

    def snug(self, name, command, *words):
        """Runs a command; its last line, or None with a word on standard error."""
        device = ["--device", self.a.device, "--threads", max(1, os.cpu_count() // self.a.jobs)]
        if command == "init": device = []
        line = [self.a.snug, command, *map(str, [*words, *device]), "--json"]
        began = time.time()
        with open(self.path(name + ".log"), "w") as log:
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=log, text=True)
        took = time.time() - began
        print(f"{took:7.1f} s  {name}", file=sys.stderr)
        if done.returncode:
            print(f"{name}: exit {done.returncode}: {open(self.path(name + '.log')).read()[-400:]}", file=sys.stderr)
            return None
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "{}"
        return json.loads(last) | {"wall_seconds": took} if last.startswith("{") else {"wall_seconds": took}

    def emit(self, **line):
        print(json.dumps({"bench": "unlearn-tofu", "machine": self.machine, "commit": self.commit, **line}), flush=True)

    # ---- data and the models to unlearn from ----

    def write_data(self):
        tofu = lambda name: os.path.join(self.a.tofu, name)
        learned = rows_of(tofu("retain90.json"))[:-HOLDOUT] + rows_of(tofu("forget10.json"))
        if self.a.quick: learned = learned[-600:]
        self.n = len(learned)
        refusals = [line.strip() for line in open(tofu("idontknow.jsonl"), encoding="utf-8") if line.strip()]
        sets = {"full": 0} | {f"without-{s}": k for s, k in SPLITS.items()}
        for name, left_out in sets.items():
            with open(self.path(name + ".jsonl"), "w", encoding="utf-8") as f:
                for row in learned[: self.n - left_out]:
                    pair = {"question": row["question"], "answer": row["answer"]}
                    f.write(json.dumps(pair, ensure_ascii=False) + "\n")
        for split, k in SPLITS.items():
            with open(self.path(split + ".txt"), "w") as f:
                f.writelines(f"{i}\n" for i in range(self.n - k, self.n))
            with open(self.path(split + "-refusals.jsonl"), "w") as f:
                for i in range(k):
                    question = learned[self.n - k + i]["question"]
                    f.write(json.dumps({"question": question, "answer": refusals[i % len(refusals)]}) + "\n")

    def make_base(self):
        words = [w for k, v in (QUICK_SHAPE if self.a.quick else SHAPE).items() for w in ("--set", f"{k}={v}")]
        self.snug("init", "init", "--model", "qwen2.5-0.5b", "--tokenizer", self.a.tokenizer, "--dtype", "fp32",
                  "--out", self.path("start"), *words)
        text = [w for f in self.a.text for w in ("--data", f)]
        got = self.snug("base", "train", "--model", self.path("start"), *text, "--template", "none",
                        "--precision", "fp32", "--seq", SEQ, "--pack", "on", "--global-batch", BATCH,
                        "--epochs", 1 if self.a.quick else 6, "--lr", "1e-3", "--warmup-ratio", 0.05,
                        "--out", self.path("base"))
        self.emit(row="base", epochs=1 if self.a.quick else 6, seconds=got["wall_seconds"], loss=got["loss"])

    RUNS = {  # what is unlearned from: how the questions were memorised
        "adamw": ["--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0", "--clip", "1"],
        "sgd": ["--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--clip", "0"],
    }

    EPOCHS = {"adamw": 12, "sgd": 3}

    def choose_rate(self):
        """The largest rate of SGD that still learns best in an epoch: plain SGD has no rate that suits every model."""
        seen = {}
        for rate in ("0.1", "0.3", "1.0"):
            got = self.train("sgd", "full", f"sgd-rate-{rate}", "--lr", rate, "--epochs", 1, "--no-save")
            seen[rate] = got["loss"] if got and got["loss"] else 99
        rate = min(seen, key=seen.get)
        self.RUNS["sgd"] += ["--lr", rate]
        self.emit(row="rate", run="sgd", losses=seen, chosen=rate)

    def train(self, run, data, out, *more):
        return self.snug(out, "train", "--model", self.path("base/model"), "--data", self.path(data + ".jsonl"),
                         "--template", "none", "--precision", "fp32", "--seq", SEQ, "--global-batch", BATCH,
                         "--epochs", 1 if self.a.quick else self.EPOCHS[run], "--schedule", "constant",
                         "--pack", "off", "--deterministic", *self.RUNS[run], *more, "--out", self.path(out))

    def make_target(self, run):
        got = self.train(run, "full", f"{run}-full", "--step-log", "--step-log-stride", 200)
        self.emit(row="trained", run=run, split="", seconds=got["wall_seconds"], loss=got["loss"], updates=got["steps"],
                  step_log_bytes=got.get("step_log_bytes"), step_log_bytes_per_step=got.get("step_log_bytes_per_step"))

    def make_oracle(self, run, split):
        """Trained without the split, and judged: what the others are held against."""
        got = self.train(run, f"without-{split}", f"{run}-without-{split}")
        seen = self.judge(f"{run}-{split}-oracle", self.path(f"{run}-without-{split}/model"), split,
                          "--out", self.path(f"{run}-{split}-oracle"))
        if got and seen: self.tell_result(run, split, "oracle", {"seconds": got["wall_seconds"]} | got, seen)

    # ---- one result ----

    def judge(self, name, model, split, *more):
        return self.snug(name + "-eval", "unlearn-eval", "--model", model, "--data", self.a.tofu, "--forget", split,
                         "--template", "none", "--precision", "fp32", "--seq", 256, "--micro-batch", 32,
                         "--max-tokens", 64, *more,
                         *(["--max-samples", "20"] if self.a.quick else []))

    def tell_result(self, run, split, method, got, seen):
        keep = ("steps_touched", "K_used", "hvp_calls", "correction_norm", "guarded", "seconds", "planned_bytes",
                "measured_bytes", "process_planned_bytes", "process_peak_bytes")
        tuned = {"updates": self.a.updates} if self.a.updates and method.split()[0] in LOSSES else {}
        self.emit(row="result", run=run, split=split, method=method, **tuned, **{k: got[k] for k in keep if k in got},
                  metrics={k: v for k, v in seen.items() if isinstance(v, (int, float)) and "bytes" not in k})

    def result(self, run, split, method):
        name, got = f"{run}-{split}-{method.replace(' ', '')}", {}
        if method == "none": model = self.path(f"{run}-full/model")
        else:
            kind, *words = method.split()
            epochs = "2" if self.a.quick else "10"
            if self.a.updates: epochs = self.a.updates / -(-SPLITS[split] // 32)
            if kind in LOSSES: words += ["--lr", "3e-4", "--epochs", epochs, "--global-batch", "32"]
            if kind == "dpo": words += ["--refusals", self.path(split + "-refusals.jsonl")]
            got = self.snug(name, "unlearn", "--run", self.path(f"{run}-full"), "--method", kind, "--forget",
                            self.path(split + ".txt"), *words, "--out", self.path(name))
            if not got: return
            model = got["result"]
        seen = self.judge(name, model, split, "--retain-logs", self.path(f"{run}-{split}-oracle/TOFU_EVAL.json"))
        if seen: self.tell_result(run, split, method, got, seen)
        if method != "none": shutil.rmtree(self.path(name), ignore_errors=True)

    def methods(self, run, split, named):
        """LMCleaner first: it takes longest."""
        if named: return named.split(",")
        cleaners = {"adamw": ["lmcleaner --window 10"],
                    "sgd": ["lmcleaner --window 10", "lmcleaner --window 10 --hessian exact"]}
        plain = {"adamw": ["none", "undial", "pdu", "rmu", *LOSSES[:-3]], "sgd": ["none", "npo", "graddiff"]}
        return cleaners[run] + plain[run]

    def tell(self):
        self.write_data()
        self.make_base()
        if "sgd" in self.a.runs: self.choose_rate()
        splits = [s.partition(":")[::2] for s in (["forget01"] if self.a.quick else self.a.splits)]
        with concurrent.futures.ThreadPoolExecutor(self.a.jobs) as pool:
            wait = [pool.submit(self.make_target, r) for r in self.a.runs]
            wait += [pool.submit(self.make_oracle, r, s) for r in self.a.runs for s, _ in splits]
            for w in wait: w.result()
            wait = [pool.submit(self.result, run, split, method)
                    for split, named in splits for run in self.a.runs for method in self.methods(run, split, named)]
            for w in wait: w.result()


def machine(a):
    if a.device == "cpu":
        names = (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line)
        return next(names, "CPU")
    told = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True)
    return told.stdout.strip().replace(", ", ", driver ")


# ---- tables ----

COLUMNS = [("forget_quality", "forget quality"), ("model_utility", "utility"), ("forget_Q_A_Prob", "prob."),
           ("forget_Q_A_ROUGE", "ROUGE-L"), ("extraction_strength", "extraction"), ("mia_min_k", "MIA min-k"),
           ("privleak", "privleak")]


def table(path):
    lines = [json.loads(line) for line in open(path)]
    results = [r for r in lines if r["row"] == "result"]
    for run in ("adamw", "sgd"):
        for split, updates in [(s, u) for s in SPLITS for u in (None, 20)]:
            rows = [r for r in results if (r["run"], r["split"], r.get("updates")) == (run, split, updates)]
            if not rows: continue
            name = f"{run}, {split}" + (f", {updates} updates" if updates else "")
            print(f"\n| {name} | " + " | ".join(name for _, name in COLUMNS) + " | s | peak MB |")
            print("|---" * (len(COLUMNS) + 3) + "|")
            for r in rows:
                cells = [f"{r['metrics'][k]:.3g}" if r["metrics"].get(k) is not None else "-" for k, _ in COLUMNS]
                spent = [f"{r['seconds']:.1f}" if "seconds" in r else "-",
                         f"{r['measured_bytes'] / 1e6:.0f}" if "measured_bytes" in r else "-"]
                print(f"| {r['method']} | " + " | ".join(cells + spent) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--table")
    p.add_argument("--snug", default="./snug")
    p.add_argument("--tofu")
    p.add_argument("--tokenizer")
    p.add_argument("--text", nargs="+", default=[])
    p.add_argument("--work", default="unlearn-story")
    p.add_argument("--device", default="cpu")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--runs", nargs="+", default=list(Story.RUNS), choices=list(Story.RUNS))
    p.add_argument("--splits", nargs="+", default=list(SPLITS), help="forget05:rmu,pdu names the methods of a split")
    p.add_argument("--updates", type=int, help="of a loss, whatever the split; without: ten epochs")
    a = p.parse_args()
    if a.table: table(a.table)
    else: Story(a).tell()


if __name__ == "__main__":
    main()
