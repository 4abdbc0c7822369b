#!/usr/bin/env python3
"""make_generate_golden.py - writes tests/gen/greedy.json: greedy ids that transformers' generate() gives for the tiny
models of tests/golden, with and without their adapters and with a repetition penalty, for short and long prompts.

A draw whose two likeliest tokens come nearer than GAP is drawn again: no rounding decides a fixture.

  make_generate_golden.py [--out tests/gen/greedy.json]
"""
import argparse
import json
import os
import random

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

GAP, NEW = 0.01, 16
MODELS = ["qwen2_tied", "qwen2_untied", "llama3", "llama_plain", "llama_linear", "mistral", "qwen3"]
LENGTHS = [1, 5, 20, 37]


def smallest_gap(out):
    least = float("inf")
    for step in out.scores:
        top = torch.topk(step[0], 2).values
        least = min(least, float(top[0] - top[1]))
    return least


def draw(model, rng, vocab, length, penalty):
    for _ in range(200):
        prompt = [rng.randrange(1, vocab) for _ in range(length)]
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                             repetition_penalty=penalty, eos_token_id=None, pad_token_id=0, return_dict_in_generate=True,
                             output_scores=True)
        if smallest_gap(out) > GAP:
            return {"prompt": prompt, "continuation": out.sequences[0].tolist()[length:]}
    raise SystemExit("no draw without a near tie")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--out", default="tests/gen/greedy.json")
    o = a.parse_args()
    rng, cases = random.Random(7), []
    for name in MODELS:
        folder = "tests/golden/" + name
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        vocab = plain.config.vocab_size
        variants = [("", plain, 1.0), ("", plain, 1.3)]
        if os.path.isdir(folder + "/adapter"):
            other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
            variants.append(("adapter", PeftModel.from_pretrained(other, folder + "/adapter").eval(), 1.0))
        for adapter, model, penalty in variants:
            rows = [draw(model, rng, vocab, n, penalty) for n in LENGTHS]
            cases.append({"model": name, "adapter": adapter, "repetition_penalty": penalty, "rows": rows})
    with open(o.out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


main()
