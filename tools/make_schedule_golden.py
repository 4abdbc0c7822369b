#!/usr/bin/env python3
"""make_schedule_golden.py - writes tests/train/schedules.json: learning rates as transformers' schedulers give them,
and
losses of a tiny model under torch's AdamW with parameter groups.

  make_schedule_golden.py [--out tests/train/schedules.json]

The model and its batch are tests/golden/qwen2_tied; rules of a step are those of hf_train_reference.py.
"""
import argparse
import fnmatch
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_train_reference as ref  # says which libraries are missing, if any are

import torch
import transformers

LR = 3e-4
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "qwen2_tied")

# kind, warm-up, steps, and what the scheduler is told besides
SCHEDULES = [
    ("cosine", 0, 40, {}), ("cosine", 7, 50, {}), ("linear", 5, 33, {}), ("constant_with_warmup", 4, 12, {}),
    ("cosine_with_min_lr", 6, 45, dict(min_lr_rate=0.1)), ("cosine_with_min_lr", 0, 20, dict(min_lr=1e-5)),
    ("warmup_stable_decay", 5, 60, dict(num_decay_steps=12)),
    ("warmup_stable_decay", 0, 30, dict(num_decay_steps=9, decay_type="linear", min_lr_ratio=0.1)),
    ("warmup_stable_decay", 3, 40, dict(num_decay_steps=20, decay_type="1-sqrt")),
    ("warmup_stable_decay", 0, 25, dict(num_decay_steps=25, decay_type="cosine", min_lr_ratio=0.05)),
]


def rates(kind, warmup, steps, more):
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    s = transformers.get_scheduler(kind, opt, num_warmup_steps=warmup, num_training_steps=steps,
                                   scheduler_specific_kwargs=more or None)
    out = []
    for _ in range(steps + 1):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    return dict(kind=kind, lr=LR, warmup=warmup, steps=steps, rates=out, **more)


# Of rules that fit a name the last counts; names are matched as snug matches them, anywhere.
GROUPS = dict(lr=2e-3, beta1=0.8, beta2=0.95, eps=1e-7, weight_decay=0.5, clip=0.5, steps=10, warmup=2, decay_steps=4,
              lr_mult={"embed": 0.1, "layers.1.*norm": 3.0, "down_proj": 2.0},
              decay_mult={"embed": 0.0, "norm": 1.0, "layers.0.mlp": 0.25})


def mult(rules, name, usual):
    for part, x in rules.items():
        if fnmatch.fnmatchcase(name, f"*{part}*"):
            usual = x
    return usual


def groups():
    g = GROUPS
    config = transformers.Qwen2Config.from_json_file(os.path.join(GOLDEN, "config_v4.json"))  # every version reads it
    model = transformers.Qwen2ForCausalLM.from_pretrained(GOLDEN, config=config, torch_dtype=torch.float32,
                                                          attn_implementation="eager")
    batch = json.load(open(os.path.join(GOLDEN, "batch.json")))
    ids, labels = torch.tensor(batch["ids"]), torch.tensor(batch["labels"])
    opt = torch.optim.AdamW(
        [{"params": [p], "lr": g["lr"] * mult(g["lr_mult"], n, 1.0),
          "weight_decay": g["weight_decay"] * mult(g["decay_mult"], n, 1.0 if p.dim() >= 2 else 0.0)}
         for n, p in model.named_parameters()], betas=(g["beta1"], g["beta2"]), eps=g["eps"], foreach=False)
    sched = transformers.get_scheduler("warmup_stable_decay", opt, num_warmup_steps=g["warmup"],
                                       num_training_steps=g["steps"],
                                       scheduler_specific_kwargs=dict(num_decay_steps=g["decay_steps"],
                                                                      decay_type="1-sqrt"))
    losses = []
    for _ in range(g["steps"]):
        opt.zero_grad()
        logp, scored = ref.token_logp(model(ids).logits, labels)
        (loss := -logp.sum() / scored).backward()
        ref.clip(list(model.parameters()), g["clip"])
        losses.append(float(f"{loss.item():.9g}"))
        opt.step()
        sched.step()
    return dict(GROUPS, losses=losses)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--out", default="tests/train/schedules.json")
    out = a.parse_args().out
    ref.be_deterministic(0)
    with open(out, "w") as f:
        json.dump(dict(versions=dict(torch=torch.__version__, transformers=transformers.__version__),
                       schedules=[rates(*s) for s in SCHEDULES], groups=groups()), f)
        f.write("\n")


main()
