#!/usr/bin/env python3
"""make_golden.py - writes tests/golden/: tiny models with the values an independent implementation gives for them.

Every case is a Hugging Face folder (config.json, model.safetensors) of random fp32 weights, a batch, and what
transformers / PEFT / torch compute from them on the CPU in fp32: logits, log-probs, gradients, losses of ten
optimizer steps. So that a fixture is known to be what the architecture says, and not a quirk of one library
version, a second forward pass, written here from the formulas in double precision, must agree with logits, losses
and gradients; how far the two are apart is kept in expected.json ("fp64"), which tells what tolerance is fair.

  make_golden.py [--out tests/golden] [case ...]       (only these cases; generate.json and rope.json need all)

Running it again with the same versions writes the same bytes. What the files hold: tests/golden/README.md.
"""
import argparse
import copy
import json
import math
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_train_reference as ref  # says which libraries are missing, if any are

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

STEPS, LR, LORA_LR, WEIGHT_DECAY, CLIP = 10, 1e-3, 5e-3, 0.01, 1.0
# Adam hardly feels the size of a gradient, SGD does; at this limit its first steps are clipped, later ones not.
SGD_LR, SGD_CLIP = 2e-2, 4.0
ACCUM_STEPS, ACCUM_WARMUP = 6, 2
LORA_R, LORA_ALPHA = 4, 8

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

# The rotary bases are small, so that with these few head dimensions every branch of each scaling rule is taken:
# llama3 has a kept, a blended and divided frequencies, yarn has values inside its ramp.
CASES = [
    dict(name="qwen2_tied", T=24, lora=True, generate=True, accum=True, config=Qwen2Config, args=dict(
        vocab_size=128, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1e6)),
    dict(name="qwen2_untied", T=21, config=Qwen2Config, args=dict(
        vocab_size=113, hidden_size=32, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=1e4)),
    dict(name="llama3", T=24, lora=True, generate=True, config=LlamaConfig, args=dict(
        vocab_size=120, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=100.0,
        max_position_embeddings=256, rope_scaling={**LLAMA3, "original_max_position_embeddings": 32})),
    dict(name="llama_linear", T=22, config=LlamaConfig, args=dict(
        vocab_size=150, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=1e4,
        rope_scaling={"rope_type": "linear", "factor": 4.0})),
    dict(name="llama_yarn", T=24, config=LlamaConfig, args=dict(
        vocab_size=110, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=20.0,
        max_position_embeddings=64,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})),
    dict(name="qwen3", T=20, lora=True, generate=True, config=Qwen3Config, args=dict(
        vocab_size=101, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1e6)),
    dict(name="mistral", T=23, config=MistralConfig, args=dict(
        vocab_size=104, hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=1e4, sliding_window=None)),
    dict(name="llama_plain", T=17, lora=True, config=LlamaConfig, args=dict(
        vocab_size=101, hidden_size=30, intermediate_size=90, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=1e4)),
    dict(name="qwen2_packed", T=28, docs=[12, 7, 9], config=Qwen2Config, args=dict(
        vocab_size=109, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1e4)),
]

# Scalings as published models and their configurations have them: frequencies only, no weights (rope.json).
ROPES = [
    dict(name="llama-3.1-8b", head_dim=128, max_position_embeddings=131072, rope_theta=500000.0,
         rope_scaling={**LLAMA3, "original_max_position_embeddings": 8192}),
    dict(name="llama-3.2-1b", head_dim=64, max_position_embeddings=131072, rope_theta=500000.0,
         rope_scaling={**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192}),
    dict(name="qwen2.5-yarn", head_dim=128, max_position_embeddings=32768, rope_theta=1000000.0,
         rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    dict(name="yarn-no-original-length", head_dim=64, max_position_embeddings=4096, rope_theta=10000.0,
         rope_scaling={"rope_type": "yarn", "factor": 8.0}),
    dict(name="yarn-betas-not-truncated", head_dim=64, max_position_embeddings=65536, rope_theta=150000.0,
         rope_scaling={"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096,
                       "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False}),
    dict(name="yarn-mscale", head_dim=64, max_position_embeddings=163840, rope_theta=10000.0,
         rope_scaling={"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
                       "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.707}),
    dict(name="yarn-attention-factor", head_dim=64, max_position_embeddings=16384, rope_theta=10000.0,
         rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
                       "attention_factor": 0.9}),
    dict(name="linear", head_dim=64, max_position_embeddings=8192, rope_theta=10000.0,
         rope_scaling={"type": "linear", "factor": 2.5}),
]


# ---- the second way: the same models from their formulas, in double precision ----

def rope_by_formula(head_dim, theta, max_positions, scaling):
    """inv_freq (head_dim/2) and the factor on cos and sin, in double."""
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    inv = theta ** (-2 * pairs / head_dim)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return inv, 1.0
    factor = scaling["factor"]
    if kind == "linear":
        return inv / factor, 1.0
    original = scaling.get("original_max_position_embeddings", max_positions)
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original * inv / (2 * math.pi)  # how often the pair turns within the original length
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return keep * inv + (1 - keep) * inv / factor, 1.0
    assert kind == "yarn", kind

    def pair_turning(times):  # the (real-valued) pair index that turns so often within the original length
        return head_dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))
    first, last = pair_turning(scaling.get("beta_fast", 32)), pair_turning(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    blend = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)

    def growth(weight):
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1
    grown = growth(1)
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        grown = growth(scaling["mscale"]) / growth(scaling["mscale_all_dim"])
    return (1 - blend) * inv + blend * inv / factor, scaling.get("attention_factor", grown)


def rope_of(config):
    rope = config.rope_parameters
    return rope_by_formula(head_dim_of(config), rope["rope_theta"], config.max_position_embeddings, rope)


def head_dim_of(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def forward_by_formula(config, weights, ids, positions, docs, adapter=None):
    """Logits (B,T,V) in the precision of weights (HF names -> tensors). positions, docs (B,T): a token sees the
    earlier tokens of its own document. adapter: PEFT names -> tensors."""
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, head_dim_of(config)
    B, T = ids.shape

    def linear(x, name):  # y = x W^T + b, W = W0 + alpha/r * B A
        y = x @ weights[name + ".weight"].T + weights.get(name + ".bias", 0.0)
        if adapter and f"base_model.model.{name}.lora_A.weight" in adapter:
            a, b = (adapter[f"base_model.model.{name}.lora_{s}.weight"] for s in "AB")
            y = y + (LORA_ALPHA / LORA_R) * (x @ a.T) @ b.T
        return y

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weights[name + ".weight"]

    inv, grown = rope_of(config)
    angle = positions[:, :, None, None].to(inv.dtype) * inv  # (B,T,1,D/2)
    cos, sin = (angle.cos() * grown), (angle.sin() * grown)

    def rotate(x):  # (B,T,H,D): component i is paired with i + D/2
        a, b = x[..., : dim // 2], x[..., dim // 2:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    sees = (docs[:, :, None] == docs[:, None, :]) & torch.ones(T, T, dtype=torch.bool).tril()
    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm")
        q, k, v = (linear(h, at + f"self_attn.{p}_proj").view(B, T, -1, dim) for p in "qkv")
        if at + "self_attn.q_norm.weight" in weights:
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(heads // kv_heads, 2) for t in (k, v))
        score = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(dim)
        prob = score.masked_fill(~sees[:, None], -math.inf).softmax(-1)
        x = x + linear(torch.einsum("bhqk,bkhd->bqhd", prob, v).reshape(B, T, -1), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        gate = linear(h, at + "mlp.gate_proj")
        x = x + linear(gate * gate.sigmoid() * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.T


# ---- drawing a case ----

def make_model(case, draw):
    """A model with weights wide enough for logits that are not flat, and no bias at 0 or norm weight at 1."""
    config = case["config"](**{"max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
                               **copy.deepcopy(case["args"])})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(0.5 + torch.rand(p.shape, generator=draw))
            else:
                spread = 0.2 if "embed" in name or "bias" in name else 0.15
                p.copy_(spread * torch.randn(p.shape, generator=draw))
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))  # a tied head is listed there too
    named = dict(model.named_parameters())
    assert decayed & set(named) == {n for n, p in named.items() if p.dim() >= 2}, "HF's decay rule has changed"
    return model.eval()  # no dropout; gradients flow as in train()


def make_rows(n, T, vocab, draw, prompts, pads):
    """ids and labels (n,T): the prompt is not scored, nor are two tokens in the middle, nor trailing padding."""
    ids = torch.randint(1, vocab, (n, T), generator=draw)
    labels = ids.clone()
    for row, (prompt, pad) in enumerate(zip(prompts, pads)):
        labels[row, :prompt] = -100
        labels[row, T // 2: T // 2 + 2] = -100
        if pad:
            ids[row, T - pad:] = 0
            labels[row, T - pad:] = -100
    return ids, labels


def make_batch(case, draw):
    """What batch.json holds, with tensors. The prompt of 0 in the first row of llama_linear leaves labels[0] set,
    which nothing predicts."""
    T, vocab = case["T"], case["args"]["vocab_size"]
    if "docs" not in case:
        ids, labels = make_rows(2, T, vocab, draw, [0 if case["name"] == "llama_linear" else 5, 3], [0, 4])
        batch = {"B": 2, "T": T, "ids": ids, "labels": labels}
    else:
        ids, labels = make_rows(1, T, vocab, draw, [3], [0])
        starts = [sum(case["docs"][:i]) for i in range(len(case["docs"]))]
        labels[0, starts] = -100  # the end of one document does not predict the start of the next
        positions = torch.cat([torch.arange(n) for n in case["docs"]])[None]
        batch = {"B": 1, "T": T, "ids": ids, "labels": labels, "positions": positions,
                 "doc_starts": torch.tensor([starts])}
    if case.get("accum"):
        rows = make_rows(4, T, vocab, draw, [2, 9, 5, 15], [0, 3, 8, 1])
        batch["accum_ids"], batch["accum_labels"] = rows
    return batch


def add_adapter(model, draw, folder):
    """Wraps model in an adapter with random A and B, and writes it as PEFT does (less its model card)."""
    config = peft.LoraConfig(r=LORA_R, lora_alpha=LORA_ALPHA, lora_dropout=0.0, target_modules=ref.PROJECTIONS,
                             task_type="CAUSAL_LM", base_model_name_or_path=None)
    lora = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, p in lora.named_parameters():
            if p.requires_grad:
                p.copy_((0.2 if "lora_A" in name else 0.1) * torch.randn(p.shape, generator=draw))
    lora.peft_config["default"].base_model_name_or_path = None
    lora.save_pretrained(folder, save_embedding_layers=False)
    if os.path.exists(f"{folder}/README.md"):
        os.remove(f"{folder}/README.md")
    with open(f"{folder}/adapter_config.json") as f:
        written = json.load(f)
    written["target_modules"].sort()  # a set in PEFT: its order changes from run to run
    with open(f"{folder}/adapter_config.json", "w") as f:
        json.dump(written, f, indent=2, sort_keys=True)
        f.write("\n")
    return lora


# ---- measuring it ----

def forward(model, batch, key=""):
    """Logits (B,T,V) of HF; documents packed in a row are run one by one, each from position 0."""
    ids = batch[key + "ids"]
    if "doc_starts" not in batch:
        return model(input_ids=ids, use_cache=False).logits
    cuts = batch["doc_starts"][0].tolist() + [batch["T"]]
    return torch.cat([model(input_ids=ids[:, a:b], use_cache=False).logits for a, b in zip(cuts, cuts[1:])], 1)


def formula_of(config, batch, weights, adapter=None, key=""):
    """The same, by formula."""
    ids = batch[key + "ids"]
    positions = batch.get("positions", torch.arange(ids.shape[1])[None]).expand(ids.shape)
    return forward_by_formula(config, weights, ids, positions, (positions == 0).cumsum(1), adapter)


def loss_of(logits, batch, key=""):
    logp, count = ref.token_logp(logits, batch[key + "labels"])
    return -logp.sum() / count


def run_training(state, trainable, loss_fn, **how):
    """Losses, gradient norms and lrs of training the tensors `trainable` of the dict `state`, which get their old
    values back. loss_fn() reads the same tensors."""
    before = [state[n].detach().clone() for n in trainable]
    steps = list(ref.train([state[n] for n in trainable], lambda _: loss_fn(), **how))
    with torch.no_grad():
        for name, old in zip(trainable, before):
            state[name].copy_(old)
            state[name].grad = None
    return tuple(list(column) for column in zip(*steps))


def gradients(state, trainable, loss):
    return dict(zip(trainable, torch.autograd.grad(loss, [state[n] for n in trainable])))


def far(a, b):
    """Largest difference, in double."""
    a, b = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (a, b))
    return float((a - b).abs().max())


def far_relative(a, b):
    return float((a.double() - b).norm() / b.norm())


def doubles(state):
    return {n: t.detach().double().requires_grad_() for n, t in state.items()}


def compare(name, found, limit):
    assert found <= limit, f"{name}: transformers and the formula are {found:.3g} apart, limit {limit}"
    return found


def measure(case, prefix, hf_model, hf_state, formula, formula_state, trainable, batch, lr):
    """One model (full or adapter): tensors for expected.safetensors, entries for expected.json, agreement with the
    formula. hf_state and formula_state: the trainable tensors by name, fp32 and double; formula(key) -> logits."""
    logits = forward(hf_model, batch)
    loss = loss_of(logits, batch)
    grads = gradients(hf_state, trainable, loss)
    if "doc_starts" not in batch:
        own = hf_model(input_ids=batch["ids"], labels=batch["labels"], use_cache=False).loss
        assert abs(own.item() - loss.item()) < 1e-6 * own.item(), "HF's own loss differs"
    exact = formula("")
    exact_loss = loss_of(exact, batch)
    exact_grads = gradients(formula_state, trainable, exact_loss)

    how = dict(steps=STEPS, lr=lr, weight_decay=WEIGHT_DECAY, max_norm=CLIP)
    losses, norms, _ = run_training(hf_state, trainable, lambda: loss_of(forward(hf_model, batch), batch), **how)
    exact_losses, _, _ = run_training(formula_state, trainable, lambda: loss_of(formula(""), batch), **how)
    assert losses[-1] < losses[0] - 0.3, f"{case['name']}: the loss hardly falls: {losses}"

    where = f"{case['name']} {prefix}"
    agreement = {
        prefix + "logits": compare(where + "logits", far(logits, exact), 1e-4),
        prefix + "loss": compare(where + "loss", far(loss, exact_loss), 1e-5),
        prefix + "grad_relative": max(compare(where + n, far_relative(grads[n], exact_grads[n]), 1e-4)
                                      for n in trainable),
        prefix + "adamw_losses": compare(where + "adamw losses", far(losses, exact_losses), 1e-3)}
    tensors = {prefix + "logits": logits, **{f"{prefix}grad.{n}": g for n, g in grads.items()}}
    values = {prefix + "loss": loss.item(),
              prefix + "adamw": {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": WEIGHT_DECAY,
                                 "weight_decay_on": "matrices", "clip": CLIP, "schedule": "constant"},
              prefix + "adamw_losses": losses,
              "grad_norms" if not prefix else prefix + "grad_norms": norms}
    return tensors, values, agreement


def measure_more(hf_model, hf_state, formula, formula_state, trainable, batch):
    """SGD, and accumulation over four rows under a warm-up and cosine schedule."""
    loss, exact = (lambda: loss_of(forward(hf_model, batch), batch)), (lambda: loss_of(formula(""), batch))
    how = dict(steps=STEPS, kind="sgd", lr=SGD_LR, max_norm=SGD_CLIP)
    sgd, sgd_norms, _ = run_training(hf_state, trainable, loss, **how)
    exact_sgd, _, _ = run_training(formula_state, trainable, exact, **how)
    assert max(sgd_norms) > SGD_CLIP * 1.05 and min(sgd_norms) < SGD_CLIP * 0.95, sgd_norms

    loss = lambda: loss_of(forward(hf_model, batch, "accum_"), batch, "accum_")
    exact = lambda: loss_of(formula("accum_"), batch, "accum_")
    how = dict(steps=ACCUM_STEPS, lr=LR, weight_decay=WEIGHT_DECAY, max_norm=CLIP, warmup=ACCUM_WARMUP)
    accum, accum_norms, lrs = run_training(hf_state, trainable, loss, **how)
    exact_accum, _, _ = run_training(formula_state, trainable, exact, **how)
    values = {"sgd": {"lr": SGD_LR, "momentum": 0.9, "weight_decay": 0.0, "clip": SGD_CLIP,
                      "schedule": "constant"},
              "sgd_losses": sgd, "sgd_grad_norms": sgd_norms,
              "adamw_accum": {"lr": LR, "weight_decay": WEIGHT_DECAY, "clip": CLIP, "schedule": "cosine",
                              "warmup_steps": ACCUM_WARMUP, "steps": ACCUM_STEPS},
              "adamw_accum_lrs": lrs, "adamw_accum_losses": accum, "adamw_accum_grad_norms": accum_norms}
    agreement = {"sgd_losses": compare("sgd", far(sgd, exact_sgd), 1e-3),
                 "adamw_accum_losses": compare("accum", far(accum, exact_accum), 1e-3)}
    return values, agreement


def check_packed(model, batch):
    """The packed row in one go, with restarting positions and a mask per document, must give the same logits."""
    docs = (batch["positions"] == 0).cumsum(1)
    sees = (docs[:, :, None] == docs[:, None, :]) & torch.ones(batch["T"], batch["T"], dtype=torch.bool).tril()
    mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)[:, None]
    whole = model(input_ids=batch["ids"], position_ids=batch["positions"], attention_mask=mask, use_cache=False)
    compare("packed row against separate documents", far(whole.logits, forward(model, batch)), 1e-5)


def greedy(model, draw, n_prompt=5, n_new=12):
    """A prompt whose greedy continuation is varied and never close to a tie, so that rounding cannot change it."""
    for _ in range(2000):
        prompt = torch.randint(1, model.config.vocab_size, (n_prompt,), generator=draw).tolist()
        ids, gaps = list(prompt), []
        with torch.no_grad():
            for _ in range(n_new):
                best = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
                gaps.append(float(best.values[0] - best.values[1]))
                ids.append(int(best.indices[0]))
        if min(gaps) > 0.02 and len(set(ids[n_prompt:])) >= 5:
            cached = model.generate(torch.tensor([prompt]), max_new_tokens=n_new, do_sample=False, use_cache=True,
                                    attention_mask=torch.ones(1, n_prompt, dtype=torch.long), pad_token_id=0)
            assert cached[0].tolist() == ids, "generate() with a cache and the plain loop differ"
            return {"prompt": prompt, "continuation": ids[n_prompt:], "smallest_gap": min(gaps)}
    sys.exit("no good prompt found: widen the weights")


# ---- writing it ----

def plain(x):
    """Tensors to lists, floats to 9 significant digits (enough for any fp32)."""
    if isinstance(x, torch.Tensor):
        return plain(x.detach().tolist())
    if isinstance(x, float):
        return float(f"{x:.9g}")
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def write_json(path, values):
    """One line per key: readable, and diffs stay small."""
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in plain(values).items()]
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def write_old_config(folder, scaling):
    """config_v4.json: the same model with the keys that published folders have (rope_theta, rope_scaling and
    torch_dtype; transformers 5 writes rope_parameters and dtype)."""
    with open(f"{folder}/config.json") as f:
        config = json.load(f)
    rope = config.pop("rope_parameters")
    config["rope_theta"], config["torch_dtype"] = rope["rope_theta"], config.pop("dtype")
    config["rope_scaling"] = dict(scaling) if scaling else None
    if scaling and scaling["rope_type"] == "linear":
        config["rope_scaling"] = {"type": "linear", "factor": scaling["factor"]}  # the oldest spelling
    config.pop("layer_types", None)
    config.pop("transformers_version")
    with open(f"{folder}/config_v4.json", "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    with open(f"{folder}/config.json") as f:
        new = transformers.AutoConfig.for_model(**json.load(f)).to_dict()
    old = transformers.AutoConfig.for_model(**config).to_dict()
    old["rope_parameters"].pop("type", None)
    new["transformers_version"] = old.get("transformers_version")
    assert old == new, "config_v4.json is not the same model"


def write_case(case, out):
    """The whole folder of one case; gives its entry of generate.json, if it has one."""
    folder = f"{out}/{case['name']}"
    shutil.rmtree(folder, ignore_errors=True)
    draw = torch.Generator().manual_seed(sum(case["name"].encode()))
    model = make_model(case, draw)
    batch = make_batch(case, draw)
    model.save_pretrained(folder)
    write_old_config(folder, case["args"].get("rope_scaling"))
    config = model.config

    state = dict(model.named_parameters())
    weights = doubles(state)
    formula = lambda key: formula_of(config, batch, weights, key=key)
    tensors, values, agreement = measure(case, "", model, state, formula, weights, list(state), batch, LR)
    logp, count = ref.token_logp(tensors["logits"], batch["labels"])
    tensors["logp"] = logp
    if "docs" in case:
        check_packed(model, batch)
    if case.get("accum"):
        more, more_agreement = measure_more(model, state, formula, weights, list(state), batch)
        values, agreement = {**values, **more}, {**agreement, **more_agreement}
    generated = greedy(model, draw) if case.get("generate") else None

    if case.get("lora"):
        lora = add_adapter(model, draw, folder + "/adapter")
        adapter = load_file(folder + "/adapter/adapter_model.safetensors")
        tuned = {n.replace(".default.", "."): p for n, p in lora.named_parameters() if p.requires_grad}
        assert all(torch.equal(tuned[n], t) for n, t in adapter.items()) and len(tuned) == len(adapter)
        exact = doubles(adapter)
        formula = lambda key: formula_of(config, batch, weights, exact, key)
        found = measure(case, "lora_", lora, tuned, formula, exact, list(adapter), batch, LORA_LR)
        tensors, values, agreement = ({**a, **b} for a, b in zip((tensors, values, agreement), found))
        values["lora"] = {"r": LORA_R, "alpha": LORA_ALPHA, "dropout": 0.0, "targets": ref.PROJECTIONS}

    rotary = model.model.rotary_emb
    inv, grown = rope_of(config)
    compare("inv_freq", far(rotary.inv_freq / inv, torch.ones_like(inv)), 1e-6)
    compare("attention_scaling", abs(rotary.attention_scaling - grown), 1e-9)
    save_file({k: t.detach().contiguous() for k, t in tensors.items()}, folder + "/expected.safetensors")
    write_json(folder + "/batch.json", batch)
    write_json(folder + "/expected.json", {
        "versions": versions(), "scored_tokens": count, **values, "inv_freq": rotary.inv_freq,
        "attention_scaling": rotary.attention_scaling, "fp64": agreement})
    n_params, losses = sum(p.numel() for p in state.values()), values["adamw_losses"]
    print(f"{case['name']:13} {n_params:6} parameters, {folder_bytes(folder):7} bytes, logits of std "
          f"{tensors['logits'].std().item():.2f}, loss {losses[0]:.4f} -> {losses[-1]:.4f}, from the formula: "
          + ", ".join(f"{k} {v:.1e}" for k, v in agreement.items()))
    return generated


def make_ropes():
    """rope.json: frequencies of published scalings, by HF, held against the formula."""
    entries = {}
    for rope in ROPES:
        args = {k: v for k, v in copy.deepcopy(rope).items() if k != "name"}  # HF adds keys to the inner dict
        config = LlamaConfig(hidden_size=rope["head_dim"], num_attention_heads=1, **args)
        rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        inv, grown = rope_by_formula(rope["head_dim"], rope["rope_theta"], rope["max_position_embeddings"],
                                     rope["rope_scaling"])
        compare(rope["name"], far(rotary.inv_freq / inv, torch.ones_like(inv)), 1e-5)
        compare(rope["name"] + " attention_scaling", abs(rotary.attention_scaling - grown), 1e-9)
        entries[rope["name"]] = {**rope, "inv_freq": rotary.inv_freq,
                                 "attention_scaling": rotary.attention_scaling}
    return entries


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    a.add_argument("--out", default=os.path.normpath(os.path.join(here, "..", "tests", "golden")))
    a.add_argument("cases", nargs="*", help="default: all, and generate.json and rope.json")
    o = a.parse_args()
    unknown = set(o.cases) - {c["name"] for c in CASES}
    if unknown:
        a.error(f"no such case: {', '.join(sorted(unknown))}. There are: {', '.join(c['name'] for c in CASES)}")
    ref.be_deterministic(0)
    generated = {c["name"]: write_case(c, o.out) for c in CASES if not o.cases or c["name"] in o.cases}
    if not o.cases:
        write_json(o.out + "/generate.json", {k: v for k, v in generated.items() if v})
        write_json(o.out + "/rope.json", make_ropes())
        print(f"all together: {folder_bytes(o.out)} bytes; {versions()}")


if __name__ == "__main__":
    main()
