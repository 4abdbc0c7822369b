#!/usr/bin/env python3
"""make_gsa_golden.py - writes tests/golden/gsa/: tiny models with gated sparse attention, and what torch gives for
them.

Every case is a folder: config.json and model.safetensors as snug reads them, and expected.safetensors with the batch
(ids, labels, positions, doc_begin), logits, selected keys, the two losses and the gradient of every parameter,
computed here from the formulas in double precision by torch's autograd. The indexer reads its input and the attention
it follows without a gradient.

  make_gsa_golden.py [--out tests/golden/gsa] [case ...]
"""
import argparse
import json
import math
import os

import torch
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
BASE = dict(vocab_size=37, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, d_ffn=24, d_indexer=4, n_indexer_heads=2,
            k_base=6, k_min=3,
            k_max=9, max_position_embeddings=256, use_adaptive_k=True, indexer_warmup_steps=0)
ROWS, SEQ = 2, 22

CASES = {
    "whole": {},
    "fixed_k": dict(use_adaptive_k=False),
    "entropy": dict(adaptive_k_method="entropy", adaptive_k_temperature=0.7),
    "relu": dict(indexer_activation="relu"),
    "random": dict(selection="random"),
    "oracle": dict(selection="oracle"),
    "all": dict(selection="all"),
    "no_gates": dict(use_value_gate=False, use_output_gate=False),
    "value_gate": dict(use_output_gate=False, gate_activation="tanh"),
    "output_gate": dict(use_value_gate=False, gate_activation="silu"),
    "gate_a_head": dict(output_gate_per_head=True),
    "blend": dict(dense_residual_alpha=0.3),
    "packed": dict(docs=[9, 2, 11]),
    "ntk": dict(rope_scaling=dict(type="ntk", factor=4.0), tie_word_embeddings=True),
    "yarn": dict(rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32), rope_base=50.0,
                 d_head=8, n_kv_heads=1),
    "warmup": dict(stage="warmup"),
    "warmup_packed": dict(stage="warmup", docs=[5, 17], indexer_activation="relu"),
    "converted": dict(qkv_bias=True, qk_norm=True),
    "some_layers": dict(sparse_layers=[1]),
    "warmup_some_layers": dict(stage="warmup", sparse_layers=[0]),
}


# ---- random numbers as snug draws them ----
MASK = (1 << 64) - 1


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def fold(key, word):
    return mix(key + 0x9E3779B97F4A7C15 * (word + 1) & MASK)


def hash32(x):
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def drawn(key, seen, i):
    """The rank of key i of those seen, where no share of a selection is kept: a new one for every query."""
    own = hash32(((key ^ key >> 32) + i * 0x9E3779B9) & 0xFFFFFFFF)
    return (hash32(own ^ seen * 0x85EBCA6B & 0xFFFFFFFF) >> 16) * 2.0**-16


# ---- the model ----
def frequencies(c, dim):
    base, scaling = c.get("rope_base", 10000.0), c.get("rope_scaling")
    if scaling and scaling["type"] == "ntk":
        base *= scaling["factor"] ** (dim / (dim - 2))
    inv = base ** (-torch.arange(0, dim, 2) / dim)
    if scaling and scaling["type"] == "yarn":
        bound = lambda beta: dim * math.log(scaling["original_max_position_embeddings"] / (beta * 2 * math.pi)) / (2
            * math.log(base))
        low, high = max(math.floor(bound(32)), 0), min(math.ceil(bound(1)), dim - 1)
        ramp = ((torch.arange(dim // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
        inv = inv / scaling["factor"] * ramp + inv * (1 - ramp)
    return inv


def norm(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def gate(z, act):
    return {"sigmoid": torch.sigmoid(z), "tanh": (torch.tanh(z) + 1) / 2, "silu": z * torch.sigmoid(z)}[act]


def rope(x, angle):  # (n, heads, dim)
    a, b = x.chunk(2, -1)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def keys_kept(c, x):
    n, k = len(x), float(c["k_base"])
    if not c["use_adaptive_k"]:
        return min(c["k_base"], n)
    temperature = c.get("adaptive_k_temperature", 1.0)
    if c.get("adaptive_k_method", "variance") == "variance":
        var = float(x.var()) if n > 1 else 0.0
        k *= 0.5 + 1 / (1 + temperature * var / (float((x * x).mean()) + 1e-8))
    else:
        p = torch.softmax(x, 0)
        k *= 0.5 + temperature * float(-(p * p.log()).sum()) / math.log(n + 1)
    return min(int(min(max(k, c["k_min"]), c["k_max"])), n)


def scores(c, w, pre, h):  # of all pairs, (n, n)
    J, E = c["n_indexer_heads"], c["d_indexer"]
    q = (h @ w[pre + "indexer.query_proj.weight"].T).view(-1, J, E)
    k = h @ w[pre + "indexer.key_proj.weight"].T
    weight = torch.sigmoid(h @ w[pre + "indexer.weight_proj.weight"].T + w[pre + "indexer.weight_proj.bias"])
    a = torch.einsum("tje,se->tjs", q, k) / math.sqrt(E) + w[pre + "indexer.bias"][None, :, None]
    return torch.einsum("tj,tjs->ts", weight, torch.relu(a) if c.get("indexer_activation") == "relu"
                        else torch.sigmoid(a))


def select(c, layer, I, seen, prob):
    """The keys of every token of a row, as a mask."""
    mask = torch.zeros_like(I, dtype=torch.bool)
    key = fold(0x65A, layer)
    for t in range(len(I)):
        at = seen[t].nonzero()[:, 0]
        x = I[t, at].detach()
        k = keys_kept(c, x)
        if c.get("selection", "learned") == "learned":
            x = torch.round(x * 4096)
        if c.get("selection") == "random":
            x = torch.tensor([drawn(key, len(at), i) for i in range(len(at))])
        if c.get("selection") == "oracle":
            x = prob[:, t, at].sum(0).detach()
        best = sorted(range(len(at)), key=lambda i: (-float(x[i]), -i))[:k]
        mask[t, at[best]] = True
    return mask


def is_sparse(c, layer):
    return layer in c.get("sparse_layers", range(c["n_layers"]))


def attention(c, w, layer, h, positions, seen, out):
    pre, H, G = f"model.layers.{layer}.self_attn.", c["n_heads"], c["n_kv_heads"]
    D, n, act = c.get("d_head", c["d_model"] // H), len(h), c.get("gate_activation", "sigmoid")
    project = lambda name: h @ w[pre + name + ".weight"].T + w.get(pre + name + ".bias", torch.zeros(1))
    q, k, v = (project(p + "_proj").view(n, -1, D) for p in "qkv")
    if c.get("qk_norm"):
        q, k = norm(q, w[pre + "q_norm.weight"], 1e-5), norm(k, w[pre + "k_norm.weight"], 1e-5)
    if c.get("use_value_gate", True) and is_sparse(c, layer):
        v = v * gate(project("value_gate"), act).view(n, -1, D)
    angle = positions[:, None] * frequencies(c, D)
    q, k = rope(q, angle), rope(k, angle)
    k, v = k.repeat_interleave(H // G, 1), v.repeat_interleave(H // G, 1)
    s = torch.einsum("thd,shd->hts", q, k) / math.sqrt(D)
    whole = torch.softmax(s.masked_fill(~seen, -math.inf), -1)
    o = dense = torch.einsum("hts,shd->thd", whole, v)
    if c.get("selection", "learned") != "all" and is_sparse(c, layer):
        I = scores(c, w, pre, h.detach())
        mask = select(c, layer, I, seen, whole)
        part = torch.softmax(s.masked_fill(~mask, -math.inf), -1)
        alpha = c.get("dense_residual_alpha", 0.0)
        if out["stage"] != "warmup":
            o = (1 - alpha) * torch.einsum("hts,shd->thd", part, v) + alpha * dense
        out["keys"].append(mask)
        for stage, p, over in (("sparse", part, mask), ("dense", whole, seen)):
            p = p.mean(0).detach()
            log_i = torch.log_softmax(I.masked_fill(~over, -math.inf), -1)
            kl = torch.where(over & (p > 0), p * (p.clamp_min(1e-300).log() - log_i.masked_fill(~over, 0)), 0.0).sum(-1)
            out[stage].append(kl)
    if c.get("use_output_gate", True) and is_sparse(c, layer):
        z = gate(project("output_gate"), act)
        o = o * (z[:, :, None] if c.get("output_gate_per_head") else z.view(n, H, D))
    return o.reshape(n, H * D) @ w[pre + "o_proj.weight"].T


def forward(c, w, ids, positions, doc_begin, out):
    x = w["model.embed_tokens.weight"][ids]
    at = torch.arange(len(ids))
    seen = (at[None] <= at[:, None]) & (at[None] >= doc_begin[:, None])
    for l in range(c["n_layers"]):
        pre = f"model.layers.{l}."
        x = x + attention(c, w, l, norm(x, w[pre + "input_layernorm.weight"], 1e-5), positions, seen, out)
        h = norm(x, w[pre + "post_attention_layernorm.weight"], 1e-5)
        up = h @ w[pre + "mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(h @ w[pre + "mlp.gate_proj.weight"].T) * up) @ w[pre
            + "mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"], 1e-5) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


# ---- a case ----
def shapes(c):
    C, H, G, F, V = c["d_model"], c["n_heads"], c["n_kv_heads"], c["d_ffn"], c["vocab_size"]
    D, J, E = c.get("d_head", C // H), c["n_indexer_heads"], c["d_indexer"]
    yield "model.embed_tokens.weight", (V, C)
    for l in range(c["n_layers"]):
        pre = f"model.layers.{l}."
        yield pre + "input_layernorm.weight", (C,)
        for name, rows in (("q_proj", H * D), ("k_proj", G * D), ("v_proj", G * D)):
            yield pre + f"self_attn.{name}.weight", (rows, C)
            if c.get("qkv_bias"):
                yield pre + f"self_attn.{name}.bias", (rows,)
        if c.get("qk_norm"):
            yield pre + "self_attn.q_norm.weight", (D,)
            yield pre + "self_attn.k_norm.weight", (D,)
        yield pre + "self_attn.o_proj.weight", (C, H * D)
        for name, rows in (("value_gate", G * D), ("output_gate", H if c.get("output_gate_per_head") else H * D)):
            if c.get("use_" + name, True) and is_sparse(c, l):
                yield pre + f"self_attn.{name}.weight", (rows, C)
                yield pre + f"self_attn.{name}.bias", (rows,)
        if c.get("selection") != "all" and is_sparse(c, l):
            for name, rows in (("query_proj", J * E), ("key_proj", E), ("weight_proj", J)):
                yield pre + f"self_attn.indexer.{name}.weight", (rows, C)
            yield pre + "self_attn.indexer.weight_proj.bias", (J,)
            yield pre + "self_attn.indexer.bias", (J,)
        yield pre + "post_attention_layernorm.weight", (C,)
        yield pre + "mlp.gate_proj.weight", (F, C)
        yield pre + "mlp.up_proj.weight", (F, C)
        yield pre + "mlp.down_proj.weight", (C, F)
    yield "model.norm.weight", (C,)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (V, C)


def make_case(name, change, folder):
    docs, stage = change.pop("docs", [SEQ]), change.pop("stage", "sparse")
    c = {**BASE, **change}
    torch.manual_seed(sum(map(ord, name)))
    w = {}
    for key, shape in shapes(c):
        x = torch.randn(shape) * (0.5 if len(shape) > 1 else 0.3)
        w[key] = (x + 1 if "norm" in key else x).float().double().requires_grad_()
    ids = torch.randint(0, c["vocab_size"], (ROWS, SEQ))
    labels = torch.randint(0, c["vocab_size"], (ROWS, SEQ))
    begin = torch.tensor([sum(docs[:i]) for i, n in enumerate(docs) for _ in range(n)])
    positions = torch.arange(SEQ) - begin
    weight = (torch.rand(ROWS, SEQ) < 0.8).double()
    out = {"keys": [], "sparse": [], "dense": [], "stage": stage}
    logits = torch.stack([forward(c, w, ids[r], positions, begin, out) for r in range(ROWS)])
    logp = torch.log_softmax(logits, -1).gather(-1, labels[..., None])[..., 0]
    loss = -(logp * weight).sum() / weight.sum()
    learned = c.get("selection", "learned") == "learned"
    index_loss = torch.zeros(())
    if learned:
        per = torch.stack(out["dense" if stage == "warmup" else "sparse"]).view(ROWS, -1, SEQ)
        index_loss = (per * weight[:, None]).sum() / weight.sum()
    (loss + index_loss).backward()
    expected = {"ids": ids.int(), "labels": labels.int(), "positions": positions.int().repeat(ROWS, 1),
                "doc_begin": begin.int().repeat(ROWS, 1), "weight": weight.float(), "logits": logits.detach().float(),
                "loss": loss.detach().reshape(1), "index_loss": index_loss.detach().reshape(1)}
    for key, x in w.items():
        if x.grad is not None:
            expected["grad." + key] = x.grad.float().contiguous()
    os.makedirs(folder, exist_ok=True)
    save_file({k: v.detach().float().contiguous() for k, v in w.items()}, os.path.join(folder, "model.safetensors"))
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"model_type": "gsa", "torch_dtype": "float32", **c}, f, indent=1)
        f.write("\n")
    kept = [int(m.sum(-1).max()) for m in out["keys"]]
    print(f"{name}: loss {float(loss):.6f}, index loss {float(index_loss):.6f}, at most {max(kept, default=0)} keys")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="tests/golden/gsa")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    for name, change in CASES.items():
        if not args.cases or name in args.cases:
            make_case(name, dict(change), os.path.join(args.out, name))


if __name__ == "__main__":
    main()
