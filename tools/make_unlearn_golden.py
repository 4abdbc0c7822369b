#!/usr/bin/env python3
"""Golden values for unlearning: products with the Hessian of a tiny model's loss by double backward in fp64.

    python tools/make_unlearn_golden.py          (torch, transformers; CPU)

Writes tests/unlearn/hvp/: model/ (weights), rows.jsonl (one batch), v/, gradient/ and hv/ (the direction, the gradient and the
product, under the names of the weights, so that each can be read like a model).
"""
import json
import os
import random
import shutil

import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "unlearn", "hvp")


def make_model():
    torch.manual_seed(3)
    c = Qwen2Config(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=False, attn_implementation="eager")
    m = Qwen2ForCausalLM(c).double()
    with torch.no_grad():
        for p in m.parameters():  # far from the start, where the Hessian is more than its first term
            p.copy_((p + torch.randn_like(p) * 0.15).float().double())
    return m


def rows():
    r = random.Random(4)
    out = []
    for _ in range(6):
        a, d = r.randrange(64), r.randrange(1, 7)
        out.append([(a + d * k * k) % 64 for k in range(r.randrange(8, 14))])
    return out


def loss_of(m, data):
    total, n = 0, 0
    for ids in data:
        x = torch.tensor([ids])
        logp = torch.log_softmax(m(x).logits[0, :-1], -1)
        total = total - logp.gather(1, x[0, 1:, None]).sum()
        n += len(ids) - 1
    return total / n


def save(name, model, tensors):
    folder = os.path.join(ROOT, name)
    os.makedirs(folder)
    if name == "model":
        model.config.torch_dtype = torch.float32
        model.config.save_pretrained(folder)
    save_file({k: t.detach().float().contiguous() for k, t in tensors.items()}, os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    m, data = make_model(), rows()
    names = [k for k, _ in m.named_parameters()]
    params = [p for _, p in m.named_parameters()]
    torch.manual_seed(5)
    v = [torch.randn_like(p).float().double() for p in params]
    g = torch.autograd.grad(loss_of(m, data), params, create_graph=True)
    hv = torch.autograd.grad(sum((a * b).sum() for a, b in zip(g, v)), params)
    save("model", m, dict(zip(names, params)))
    save("v", m, dict(zip(names, v)))
    save("gradient", m, dict(zip(names, g)))
    save("hv", m, dict(zip(names, hv)))
    with open(os.path.join(ROOT, "rows.jsonl"), "w") as f:
        for ids in data:
            f.write(json.dumps({"ids": ids}) + "\n")


main()
