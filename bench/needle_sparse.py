#!/usr/bin/env python3
"""needle_sparse.py [STEPS] [LENGTH] [KEYS] [SEED] - is a needle found by the keys that an indexer selects? On a CPU,
in a few minutes; with DEVICE=cuda on a GPU, with a model whose heads its tiles know.

A row is LENGTH random filler tokens with one of 64 values among them, at any depth, and a question at its end; only
the answer, that value, is scored. A model of two layers is trained with the learned selection, with as many keys at
random, with the oracle's and with all keys (dense), and evaluated on 256 other rows; the one trained with its indexer
also with the other selections. One JSON line each: the loss of the answer (chance: ln 64 = 4.159), the geometric mean
of the answer's probability, recall of the indexer.
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SNUG = os.environ.get("SNUG", os.path.join(ROOT, "snug"))
STEPS, LENGTH, KEYS, SEED = (int(x) for x in (sys.argv[1:] + ["500", "128", "8", "1"][len(sys.argv) - 1:])[:4])
DEVICE = os.environ.get("DEVICE", "cpu")
PRECISION, RATE = ("bf16", "3e-3") if DEVICE == "cuda" else ("fp32", "1e-2")
QUESTION, FILLER, VALUES = 5, range(10, 200), range(200, 264)


def snug(*words):
    done = subprocess.run([SNUG, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"snug {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def rows(path, n, seed):
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(n):
            ids = rng.choices(FILLER, k=LENGTH - 2)
            value = rng.choice(VALUES)
            ids[rng.randrange(len(ids))] = value
            ids += [QUESTION, value]
            f.write(json.dumps({"ids": ids, "labels": [-100] * (LENGTH - 1) + [value]}) + "\n")


def evaluate(work, model, selection):
    line = json.loads(snug("eval", "--model", model, "--data", f"{work}/held.jsonl", "--seq", LENGTH, "--micro-batch",
                           16, "--pack", "off",
                           "--selection", selection, "--device", DEVICE, "--json", "--attention-report",
                           f"{work}/report.html"))
    return line["loss"], line["attention"]["all"].get("indexer_recall")


def report(trained, evaluated, loss, recall):
    print(json.dumps({"trained": trained, "evaluated": evaluated, "device": DEVICE, "seed": SEED, "steps": STEPS,
                      "length": LENGTH,
                      "keys": KEYS, "loss": round(loss, 4), "probability": round(math.exp(-loss), 4),
                      "recall": recall and round(recall, 4)}), flush=True)


def main():
    with tempfile.TemporaryDirectory() as work:
        rows(f"{work}/train.jsonl", 32 * STEPS, 2 * SEED - 1)
        rows(f"{work}/held.jsonl", 256, 2 * SEED)
        shape = {"d_model": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ffn": 128, "vocab_size": 264,
                 "d_indexer": 16,
                 "n_indexer_heads": 2, "k_base": KEYS, "k_min": KEYS, "k_max": KEYS, "use_adaptive_k": "false",
                 "max_position_embeddings": LENGTH}
        if DEVICE == "cuda":
            shape |= {"d_model": 128, "n_heads": 2, "d_ffn": 256, "d_indexer": 64, "n_indexer_heads": 4}
        snug("init", "--model", "gsa-512m", "--out", f"{work}/m", "--dtype", "fp32",
             *(w for k, v in shape.items() for w in ("--set", f"{k}={v}")))
        for selection in ("learned", "random", "oracle", "all"):
            warmup = ("--indexer-warmup-steps", STEPS // 2) if selection == "learned" else ()
            snug("train", "--model", f"{work}/m", "--data", f"{work}/train.jsonl", "--mode", "full", "--precision",
                 PRECISION, "--seq", LENGTH,
                 "--micro-batch", 32, "--accum", 1, "--pack", "off", "--steps", STEPS, "--lr", RATE, "--seed", SEED,
                 "--warmup-steps", 20, "--beta2", 0.95,
                 "--selection", selection, *warmup, "--log-steps", STEPS, "--device", DEVICE, "--out",
                 f"{work}/{selection}", "--overwrite")
            for other in ("learned", "random", "oracle", "all") if selection == "learned" else (selection,):
                report(selection, other, *evaluate(work, f"{work}/{selection}/model", other))


main()
