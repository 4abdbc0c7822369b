#!/usr/bin/env python3
"""hf_train_reference.py - what "the same training in Hugging Face + torch, fp32" means, step by step.

Prints one JSON object per optimizer step, to compare a whole run with by hand; make_golden.py uses its rules. Rows
of the JSONL are {"ids": [...], "labels": [...]}, labels aligned with ids (-100: not scored; position t predicts
labels[t+1]). A step takes the next --batch rows in file order, round and round; loss = sum over scored tokens
/ count, before the update. Random LoRA starts differ between programs: --save-init one, or begin at --adapter.
  hf_train_reference.py --model DIR --data rows.jsonl --lr 1e-3 --steps 20 --batch 4
  hf_train_reference.py --model DIR --data rows.jsonl --mode lora --r 8 --alpha 16 --save-init DIR
"""
import argparse
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
    import peft
except ImportError as missing:
    sys.exit(f"{missing}. This script needs torch, transformers and peft (pip install torch transformers peft).")

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def be_deterministic(seed):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def token_logp(logits, labels):
    """(B,T,V), (B,T) -> log-prob of labels[t+1] at t (B,T), 0 where not scored; and how many are scored."""
    targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    scored = targets != -100
    picked = torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(scored, picked, torch.zeros_like(picked)), int(scored.sum())


def make_optimizer(params, kind, lr, weight_decay):
    """Decay on matrices (embeddings too), none on biases and norm weights: the rule of HF's Trainer."""
    if kind == "sgd":
        return torch.optim.SGD(params, lr=lr, momentum=0.9)
    groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.999), eps=1e-8, foreach=False)


def clip(params, max_norm):
    """torch's clip_grad_norm_ with the norm in double: g *= min(1, max_norm / (norm + 1e-6)). Gives the norm."""
    norm = sum(float(p.grad.double().pow(2).sum()) for p in params) ** 0.5
    for p in params:
        p.grad.mul_(min(1.0, max_norm / (norm + 1e-6)) if max_norm > 0 else 1.0)
    return norm


def train(params, loss_of_step, steps, kind="adamw", lr=1e-3, weight_decay=0.01, max_norm=1.0, warmup=None):
    """Yields (loss before the update, gradient norm before clipping, lr) per step; warmup = None is a constant lr,
    else HF's cosine schedule (its first step has lr 0)."""
    opt = make_optimizer(params, kind, lr, weight_decay)
    sched = None if warmup is None else transformers.get_cosine_schedule_with_warmup(opt, warmup, steps)
    for step in range(steps):
        opt.zero_grad()
        (loss := loss_of_step(step)).backward()
        norm = clip(params, max_norm)
        yield loss.item(), norm, opt.param_groups[0]["lr"]
        opt.step()
        if sched:
            sched.step()


def read_options():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--data"):
        a.add_argument(name, required=True)
    for name, default in {"lr": 1e-3, "weight-decay": 0.01, "clip": 1.0, "steps": 10, "batch": 1, "r": 8,
                          "alpha": 16, "seed": 0}.items():
        a.add_argument("--" + name, type=type(default), default=default)
    a.add_argument("--mode", choices=["full", "lora"], default="full")
    a.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    a.add_argument("--warmup", type=int, help="cosine schedule with so many warm-up steps (default: constant lr)")
    a.add_argument("--adapter", help="lora: start from this adapter folder (its rank and alpha count)")
    a.add_argument("--save-init", help="lora: write the adapter before the first step to this folder")
    return a.parse_args()


def main():
    o = read_options()
    be_deterministic(o.seed)
    with open(o.data) as f:
        rows = [json.loads(line) for line in f if line.strip()]
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(o.model, dtype=torch.float32, attn_implementation="eager")
    if o.mode == "lora" or o.adapter or o.save_init:
        fresh = peft.LoraConfig(r=o.r, lora_alpha=o.alpha, target_modules=PROJECTIONS)
        model = (peft.PeftModel.from_pretrained(model, o.adapter, is_trainable=True) if o.adapter
                 else peft.get_peft_model(model, fresh))
        if o.save_init:
            model.save_pretrained(o.save_init, save_embedding_layers=False)
    model.eval()  # no dropout; gradients flow as in train()

    def loss_of_step(step):
        batch = [rows[(step * o.batch + i) % len(rows)] for i in range(o.batch)]
        parts = [token_logp(model(input_ids=torch.tensor([row["ids"]])).logits, torch.tensor([row["labels"]]))
                 for row in batch]  # row by row, so that rows of different lengths need no padding
        return -sum(logp.sum() for logp, _ in parts) / sum(count for _, count in parts)

    params = [p for p in model.parameters() if p.requires_grad]
    steps = train(params, loss_of_step, o.steps, o.optimizer, o.lr, o.weight_decay, o.clip, o.warmup)
    for i, now in enumerate(steps):
        loss, norm, lr = (float(f"{x:.9g}") for x in now)
        print(json.dumps({"step": i + 1, "loss": loss, "grad_norm": norm, "lr": lr}), flush=True)


if __name__ == "__main__":
    main()
