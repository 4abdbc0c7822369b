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
model = AutoModelForCausalLM.from_pretrained(o.model,
                                             dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[o.dtype]).eval()


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime


def run(n_prompt, n_new):
    ids = torch.randint(0, 30000, (1, n_prompt))
    began, began_cpu = time.perf_counter(), cpu()
    out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    prefill, prefill_cpu, began, began_cpu = time.perf_counter() - began, cpu() - began_cpu, time.perf_counter(), cpu()
    for _ in range(n_new):
        out = model(input_ids=out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
    return (prefill, prefill_cpu), (time.perf_counter() - began, cpu() - began_cpu)


with torch.inference_mode():
    run(8, 4)
    prefill, _ = run(512, 0)
    _, decode = run(8, 64)
print(json.dumps({"decode_tokens_per_s": 64 / decode[0], "prefill_tokens_per_s": 512 / prefill[0],
                  "decode_cpu_s": decode[1],
                  "prefill_cpu_s": prefill[1]}))
