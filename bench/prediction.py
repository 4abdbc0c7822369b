#!/usr/bin/env python3
"""prediction.py [SNUG] [--machine FILE] [--all] [--each] - what the planner predicts beside what was measured.

Replays the committed runs of an H200 (bench/results/gpu-train-h200.jsonl and those beside it, FILES below) through
`snug plan --gpu h200`: of every command the newest run counts (--all: each of them). Needs no GPU. Runs of sparse
attention's older kernels are left out. Without --machine the card's row of src/ir/cards.c is used;
bench/machines/h200.json holds what `snug doctor` measured. --each: a row a run. Ratios are predicted / measured tokens
per second.
"""
import argparse
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FILES = ("gpu-train", "gpu-budget", "gpu-memory", "gpu-prediction", "gsa-long", "gpu-grpo")
# Lines of these commits were made before 3354c4f, by sparse kernels that are no longer there
OLDER_SPARSE_KERNELS = ("1c491be",)
# Options of a run that a plan does not have, with the number of their values
# Rows of these lengths were run with snug's own attention, which the line's plan does not say (docs/planning.md,
# "Long rows")
OWN_ATTENTION = ("112256", "178432")
NOT_OF_A_PLAN = {"--data": 1, "--steps": 1, "--out": 1, "--init": 1, "--device": 1, "--no-save": 0, "--profile": 0,
                 "--budget": 1, "--ahead": 1, "--json": 0, "--overwrite": 0, "--log-steps": 1, "--pack": 1,
                 "--global-batch": 1, "--meta-prompt": 1}
NOT_OF_A_GRPO_PLAN = {"--steps": 1, "--meta-prompt": 1}


def plan_flags(command, plan):
    """Flags of `snug plan` for a run: its own, and the layout that its planner settled on."""
    words = command.split("snug train ", 1)[-1].split()
    out, layout = [], (plan or "").split()
    named = set(layout)
    while words:
        w = words.pop(0)
        n = NOT_OF_A_PLAN.get(w, 0 if w in ("--no-clip", "--tf32") else 1)
        values = [words.pop(0) for _ in range(n) if words]
        if w not in NOT_OF_A_PLAN and w not in named:
            out += [w] + values
    if "--seq" in out and out[out.index("--seq") + 1] in OWN_ATTENTION:
        out += ["--attention", "own"]
    return out + layout


def grpo_flags(command, plan):
    """The same of `snug grpo`. The budget stays, and nothing is said of offload: which weights come by phase is the search's."""
    words, out = command.split(), ["--task", "grpo"]
    layout = plan.replace("--offload none", "").split()
    while words:
        w, value = words.pop(0), words.pop(0)
        if w not in NOT_OF_A_GRPO_PLAN and w not in layout:
            out += [w, value]
    if "--prompt-tokens" not in out:  # older lines: bench/grpo_gpu.sh gave it to every row
        out += ["--prompt-tokens", "128"]
    return out + layout


def rows(everything):
    found = {}
    for name in FILES:
        path = os.path.join(ROOT, "bench/results", name + "-h200.jsonl")
        for line in open(path) if os.path.exists(path) else []:
            d = json.loads(line)
            s = d.get("snug") if name != "gpu-grpo" else d["result"] if isinstance(d["result"], dict) else d
            if not s or not s.get("tokens_per_s") or not s.get("plan") or d.get("mode") == "deterministic":
                continue
            command = d.get("flags") or d["command"]
            if "gsa" in command and "--selection all" not in command and d.get("commit") in OLDER_SPARSE_KERNELS:
                continue
            flags = grpo_flags(command, s["plan"]) if name == "gpu-grpo" else plan_flags(command, s["plan"])
            if "--model" not in flags:
                continue
            asked = re.sub(r"--(steps|data|meta-prompt) \S+ ?|--profile|--prompt-tokens 128 ", "", command.split("snug train ", 1)[-1])
            key = len(found) if everything else (name, " ".join(asked.split()))
            found[key] = dict(bench=name, flags=flags, measured=s["tokens_per_s"], then=s.get("predicted_tokens_per_s"))
    return list(found.values())


def predict(snug, flags, machine):
    words = [snug, "plan", *flags, "--gpu", "h200", "--json"] + (["--machine", machine] if machine else [])
    if "--precision" not in flags:
        words += ["--precision", "bf16"]
    r = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    try:
        return json.loads(r.stdout)["predicted"]["tokens_per_s"]
    except (ValueError, KeyError):
        sys.exit(f"{' '.join(words)}: {r.stderr[-400:]}")


def kind_of(flags):
    text = " ".join(flags)
    if "--task grpo" in text:
        return "GRPO" + (", with an evaluator" if "--evaluator" in text else "")
    what = "LoRA" if "--mode lora" in text else "full"
    for flag, word in (("--quantize", "quantised"), ("--moments 8bit", "8-bit moments"),
                       ("--master fp32", "fp32 masters"),
                       ("--precision fp32", "fp32"), ("--precision fp16", "fp16"), ("--tf32", "tf32"), ("gsa", "gsa")):
        if flag in text:
            what += ", " + word
    return what + (", offload" if re.search(r"--offload (?!none)", text) else "")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("snug", nargs="?", default="./snug")
    a.add_argument("--machine")
    a.add_argument("--all", action="store_true")
    a.add_argument("--each", action="store_true")
    o = a.parse_args()
    groups, ratios = {}, []
    for r in rows(o.all):
        p = predict(os.path.abspath(o.snug), r["flags"], o.machine and os.path.abspath(o.machine))
        ratios.append(p / r["measured"])
        groups.setdefault(kind_of(r["flags"]), []).append(p / r["measured"])
        if o.each:
            print(f"{p / r['measured']:6.3f} {r['measured']:9.0f} {p:9.0f}  {' '.join(r['flags'])}")
    print("| jobs on an H200 | runs | least | median | most |\n|---|---|---|---|---|")
    for kind, x in sorted(groups.items()) + [("all", ratios)]:
        x = sorted(x)
        print(f"| {kind} | {len(x)} | {x[0]:.2f} | {x[len(x) // 2]:.2f} | {x[-1]:.2f} |")
    within = [sum(abs(x - 1) <= limit for x in ratios) for limit in (0.10, 0.15)]
    print(f"\nwithin 10 %: {within[0]} of {len(ratios)}, within 15 %: {within[1]}")


main()
