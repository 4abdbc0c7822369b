#!/usr/bin/env python3
"""Golden values for unlearning: Hessian products by double backward, and losses with their gradients, all in fp64.

    python tools/make_unlearn_golden.py          (torch, transformers; CPU)

Writes tests/unlearn/hvp/: model/ (weights), rows.jsonl (one batch), v/, gradient/, hv/ and gauss_newton/ (the
direction, the gradient, the products with the Hessian and with the Gauss-Newton matrix, under the names of the
weights, so that each can be read like a model), gradient_norms.json (of each row alone), and losses.json: for every
loss rows of log-probabilities, the loss, and what autograd gives for -dL/dlogp of every token. The losses are written
here from open-unlearning's description, on logits; ceu's gradient is divided by that of the label's log-probability.
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
                    num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=False,
                    attn_implementation="eager")
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


def gauss_newton(m, data, params, v):
    """sum over tokens of J^T (diag(p) - p p^T) J v / tokens, J v by forward mode and J^T by backward, both exact."""
    names = [k for k, _ in m.named_parameters()]
    n = sum(len(ids) - 1 for ids in data)
    total = [torch.zeros_like(p) for p in params]
    for ids in data:
        def logits(*p):
            return torch.func.functional_call(m, dict(zip(names, p)), (torch.tensor([ids]),)).logits[0, :-1]
        z, jv = torch.func.jvp(logits, tuple(params), tuple(v))
        p = torch.softmax(z, -1)
        _, back = torch.func.vjp(logits, *params)
        for t, g in zip(total, back((p * jv - p * (p * jv).sum(-1, keepdim=True)) / n)):
            t += g
    return total


def save(name, model, tensors):
    folder = os.path.join(ROOT, name)
    os.makedirs(folder)
    if name == "model":
        model.config.torch_dtype = torch.float32
        model.config.save_pretrained(folder)
    save_file({k: t.detach().float().contiguous() for k, t in tensors.items()},
              os.path.join(folder, "model.safetensors"),
              metadata={"format": "pt"})


# ---- losses ----

V = 11
LOSSES = {"gradascent": {}, "graddiff": dict(gamma=0.7, alpha=1.3), "npo": dict(beta=0.1),
          "simnpo": dict(beta=4.5, delta=0.2, gamma=0.125),
          "dpo": dict(beta=0.3), "wga": dict(beta=1.0), "satimp": dict(beta=5.0, beta2=1.0), "ceu": {}}


def draw_rows(kinds):
    out = []
    for kind in kinds:
        t = int(torch.randint(2, 7, ()).item())
        logits = (torch.randn(t, V, dtype=torch.double) * 1.5).requires_grad_()
        out.append(dict(kind=kind, logits=logits, labels=torch.randint(0, V, (t,)),
                        reference=float(torch.rand(()) * 3 * t)))
    return out


def logp_of(row):
    return torch.log_softmax(row["logits"], -1).gather(1, row["labels"][:, None])[:, 0]


def loss_value(name, rows, gamma=1.0, alpha=1.0, beta=1.0, beta2=1.0, delta=0.0):
    sig = torch.nn.functional.logsigmoid
    f = [r for r in rows if r["kind"] == "forget"]
    k = [r for r in rows if r["kind"] == "retain"]
    w = [r for r in rows if r["kind"] == "refusal"]
    nll = lambda r: -logp_of(r).sum()
    keep = alpha * sum(nll(r) for r in k) / sum(len(r["labels"]) for r in k) if k else 0
    tokens = torch.cat([-logp_of(r) for r in f])
    if name in ("gradascent", "graddiff"):
        return -gamma * tokens.mean() + keep
    if name == "npo":
        return gamma * torch.stack([-2 / beta * sig(beta * (nll(r) - r["reference"])) for r in f]).mean() + keep
    if name == "simnpo":
        return gamma * torch.stack([-2 / beta * sig(beta * (nll(r) / len(r["labels"]) - delta))
                                    for r in f]).mean() + keep
    if name == "dpo":
        pair = [-2 / beta * sig(beta * ((b["reference"] - nll(b)) - (a["reference"] - nll(a)))) for a, b in zip(f, w)]
        return gamma * torch.stack(pair).mean() + keep
    if name in ("wga", "satimp"):
        p = torch.exp(-tokens).detach()
        by = p ** beta * ((1 - p) ** beta2 if name == "satimp" else 1)
        return -gamma * (by * tokens).mean() + keep
    parts = []  # ceu
    for r in f:
        masked = r["logits"].detach().clone()
        masked[torch.arange(len(r["labels"])), r["labels"]] = -float("inf")
        target = torch.softmax(masked, -1)
        parts.append(-(target * torch.log_softmax(r["logits"], -1)).sum(-1)[1:])
    return gamma * torch.cat(parts).mean()


def losses():
    torch.manual_seed(6)
    out = []
    for name, args in LOSSES.items():
        kinds = ["forget"] * 3 + ([] if name in ("gradascent", "ceu") else ["retain"] * 3) + (["refusal"] * 3
            if name == "dpo" else [])
        rows = draw_rows(kinds)
        loss = loss_value(name, rows, **args)
        loss.backward()
        case = dict(name=name, args=args, rows=[])
        if name != "ceu":
            case["loss"] = float(loss.detach())
        for i, r in enumerate(rows):
            p = torch.softmax(r["logits"].detach(), -1).gather(1, r["labels"][:, None])[:, 0]
            g = r["logits"].grad.gather(1, r["labels"][:, None])[:, 0] / (1 - p)
            onehot = torch.nn.functional.one_hot(r["labels"], V) - torch.softmax(r["logits"].detach(), -1)
            assert torch.allclose(g[:, None] * onehot, r["logits"].grad,
                                  atol=1e-12), name  # nothing but the label's logp matters
            case["rows"].append(dict(kind=r["kind"], pair=i % 3, reference=r["reference"],
                                     logp=[float(x) for x in logp_of(r).detach()],
                                     weight=[float(-x) for x in g]))
        out.append(case)
    with open(os.path.join(ROOT, "..", "losses.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


def dense():
    """Values and gradients of losses on whole vectors: label, undial, divergence, margin, square."""
    torch.manual_seed(7)
    out = []
    for _ in range(4):
        z = (torch.randn(13, dtype=torch.double) * 2).float().double().requires_grad_()
        ref = (torch.randn(13, dtype=torch.double) * 2).float().double()
        label = int(torch.randint(0, 13, ()).item())
        logp = torch.log_softmax(z, -1)
        lowered = ref.clone()
        lowered[label] -= 10
        q, p_ref = torch.softmax(lowered, -1), torch.softmax(ref, -1)
        values = dict(label=-logp[label], undial=-(q * logp).sum(),
                      divergence=(p_ref * (torch.log(p_ref) - logp)).sum(),
                      margin=(z.max() - z.mean()) ** 2, square=((z - 2 * ref) ** 2).mean())
        case = dict(z=z.tolist(), ref=ref.tolist(), label=label, losses={})
        for name, v in values.items():
            (g,) = torch.autograd.grad(v, z, retain_graph=True)
            case["losses"][name] = dict(value=float(v), gradient=g.tolist())
        out.append(case)
    with open(os.path.join(ROOT, "..", "dense.json"), "w") as f:
        json.dump(out, f)
        f.write("\n")


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
    save("gauss_newton", m, dict(zip(names, gauss_newton(m, data, [p.detach() for p in params], v))))
    norms = []
    for ids in data:
        g = torch.autograd.grad(loss_of(m, [ids]), params)
        norms.append(float(torch.sqrt(sum((t ** 2).sum() for t in g))))
    with open(os.path.join(ROOT, "gradient_norms.json"), "w") as f:
        f.write(json.dumps(norms) + "\n")
    with open(os.path.join(ROOT, "rows.jsonl"), "w") as f:
        for ids in data:
            f.write(json.dumps({"ids": ids}) + "\n")
    losses()
    dense()


main()
