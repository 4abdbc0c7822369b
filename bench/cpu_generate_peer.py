#!/usr/bin/env python3
"""cpu_generate_peer.py - one answer by transformers on the CPU: prefill of 512 tokens, decode of 64, as a JSON line.

    cpu_generate_peer.py --model DIR --dtype fp32|bf16 --threads 2
"""
import argparse, json, resource, time
import torch
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", required=True)
p.add_argument("--dtype", default="fp32")
p.add_argument("--threads", type=int, default=2)
o = p.parse_args()
torch.set_num_threads(o.threads)
model = AutoModelForCausalLM.from_pretrained(o.model, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[o.dtype]).eval()


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime


def run(n_prompt, n_new):
    ids = torch.randint(0, 30000, (1, n_prompt))
    began = time.perf_counter()
    out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    prefill, began, began_cpu = time.perf_counter() - began, time.perf_counter(), cpu()
    for _ in range(n_new):
        out = model(input_ids=out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
    return prefill, time.perf_counter() - began, cpu() - began_cpu


with torch.inference_mode():
    run(8, 4)
    prefill, _, _ = run(512, 0)
    _, decode, decode_cpu = run(8, 64)
print(json.dumps({"peer": "transformers, torch " + torch.__version__, "decode_tokens_per_s": 64 / decode,
                  "prefill_tokens_per_s": 512 / prefill, "decode_cpu_s": decode_cpu}))
