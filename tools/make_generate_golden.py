#!/usr/bin/env python3
"""make_generate_golden.py - writes tests/gen/greedy.json: greedy ids that transformers' generate() gives for the tiny
models of tests/golden, with and without their adapters and with a repetition penalty, for short and long prompts.
--fp16 writes tests/gen/greedy_fp16.json instead: the models with weights and activations in fp16.

A draw whose two likeliest tokens come nearer than GAP is drawn again: no rounding decides a fixture.

  make_generate_golden.py [--fp16] [--out FILE]
"""
import argparse
import json
import os
import random

import torch
import transformers
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

GAP, GAP_FP16, NEW = 0.01, 0.03, 16
MODELS = ["qwen2_tied", "qwen2_untied", "llama3", "llama_plain", "llama_linear", "mistral", "qwen3"]
LENGTHS = [1, 5, 20, 37]


def smallest_gap(out):
    least = float("inf")
    for step in out.scores:
        top = torch.topk(step[0], 2).values
        least = min(least, float(top[0] - top[1]))
    return least


def draw(model, rng, vocab, length, penalty, gap=GAP):
    for _ in range(200):
        prompt = [rng.randrange(1, vocab) for _ in range(length)]
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                             repetition_penalty=penalty, eos_token_id=None, pad_token_id=0,
                             return_dict_in_generate=True,
                             output_scores=True)
        if smallest_gap(out) > gap:
            return {"prompt": prompt, "continuation": out.sequences[0].tolist()[length:]}
    raise SystemExit("no draw without a near tie")


def load(folder):
    config = AutoConfig.from_pretrained(folder)
    if int(transformers.__version__.split(".")[0]) < 5:  # which knows rope_parameters by two older names
        rope = config.rope_parameters
        config.rope_theta = rope["rope_theta"]
        config.rope_scaling = None if rope["rope_type"] == "default" else rope
    return AutoModelForCausalLM.from_pretrained(folder, config=config, torch_dtype=torch.float32,
                                                attn_implementation="eager").eval()


def cases_fp32(rng):
    for name in MODELS:
        folder = "tests/golden/" + name
        plain = load(folder)
        variants = [("", plain, 1.0), ("", plain, 1.3)]
        if os.path.isdir(folder + "/adapter"):
            variants.append(("adapter", PeftModel.from_pretrained(load(folder), folder + "/adapter").eval(), 1.0))
        for adapter, model, penalty in variants:
            rows = [draw(model, rng, plain.config.vocab_size, n, penalty) for n in LENGTHS]
            yield {"model": name, "adapter": adapter, "repetition_penalty": penalty, "rows": rows}


def cases_fp16(rng):
    for name in MODELS:
        model = load("tests/golden/" + name).half()
        yield {"model": name, "rows": [draw(model, rng, model.config.vocab_size, n, 1.0, GAP_FP16) for n in LENGTHS]}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--fp16", action="store_true")
    a.add_argument("--out")
    o = a.parse_args()
    cases = list((cases_fp16 if o.fp16 else cases_fp32)(random.Random(7)))
    with open(o.out or "tests/gen/greedy%s.json" % ("_fp16" if o.fp16 else ""), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


main()
