#!/usr/bin/env python3
"""make_grpo_golden.py - writes tests/grpo/golden/: what TRL's own trainer makes of drawn rewards, lengths and
log-probabilities, and what independent Python says about drawn texts.

    python3 tools/make_grpo_golden.py [--out tests/grpo/golden] [advantage] [update] [prompts] [text] [accuracy] [model]

needs trl==0.25.0, transformers<5, torch, sacrebleu and math_verify; `model`, a whole update of a tiny decoder with each
answer behind a prompt of its own, needs torch alone. The methods of trl.GRPOTrainer are called as they
are, on an object that has only the attributes they read: its model is a table of log-probabilities. Everything is
computed in fp64 and again in fp32, as training does; both are kept. Rewards and weights are binary fractions, so that
they are the same numbers in both. Running it again writes the same bytes.
"""
import argparse
import json
import math
import os
import random
import types
from collections import Counter, defaultdict, deque

import torch

GROUPINGS = ["group", "batch", "none"]
LOSSES = ["dapo", "grpo", "bnpo", "dr_grpo"]
EOS, PAD, WORD = 0, 1, 2


# ---- a trainer without a model ----

class Accelerator:
    device = torch.device("cpu")
    process_index, num_processes, is_main_process = 0, 1, True

    def gather(self, x):
        return x


class Words:
    def batch_decode(self, ids, skip_special_tokens=True):
        return ["" for _ in ids]


def stub_trainer(case, real):
    """An object with what GRPOTrainer's methods read. real: torch.float64 or torch.float32."""
    import accelerate
    from trl.trainer.grpo_trainer import GRPOTrainer

    accelerate.PartialState(cpu=True)  # its log asks for one
    t = types.SimpleNamespace()
    t.args = types.SimpleNamespace(
        steps_per_generation=case["steps"], gradient_accumulation_steps=case["accum"],
        per_device_train_batch_size=case["batch"], per_device_eval_batch_size=case["batch"], delta=None, report_to=[])
    t.accelerator, t.processing_class = Accelerator(), Words()
    t.model, t.ref_model = types.SimpleNamespace(training=True), types.SimpleNamespace()
    t.state = types.SimpleNamespace(global_step=0, num_input_tokens_seen=0)
    t.num_generations, t.num_iterations = case["group"], case["iterations"]
    t.scale_rewards, t.loss_type = case["scale"], case["loss_type"]
    t.mask_truncated_completions = case["mask_truncated"]
    t.max_completion_length = case["max_completion"]
    t.beta, t.epsilon_low, t.epsilon_high = case["beta"], case["epsilon_low"], case["epsilon_high"]
    t.importance_sampling_level, t.top_entropy_quantile = "token", 1.0
    t.use_vllm, t.vllm_importance_sampling_correction = False, False
    t.eos_token_id, t.pad_token_id = EOS, PAD
    t.current_gradient_accumulation_steps = case["accum"]
    t.reward_weights = torch.tensor(case["weights"], dtype=torch.float32).to(real)
    t._metrics = {"train": defaultdict(list)}
    t._logs = {"prompt": deque(), "completion": deque(), "rewards": defaultdict(deque), "advantages": deque()}
    t._step, t._buffered_inputs = 0, None
    t.chat_template_kwargs = {}
    t.reward_func_names = [f"f{k}" for k in range(len(case["weights"]))]
    t.reward_processing_classes = [None] * len(case["weights"])
    t.reward_funcs = [
        (lambda k: lambda prompts, **_: [case["given"][int(p)][k] for p in prompts])(k)
        for k in range(len(case["weights"]))]

    # The first prompt token says which completion a row is.
    def generate_single_turn(prompts):
        ids = []
        for i in range(len(prompts)):
            n = case["tokens"][i]
            ids.append([WORD] * (n - 1) + [WORD if case["truncated"][i] else EOS])
        return [[10 + i] for i in range(len(prompts))], ids, None, {}

    def logps(model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, **_):
        rows = [int(r) - 10 for r in input_ids[:, 0]]
        if model is t.ref_model:
            table = case["ref"]
        elif not compute_entropy:
            table = case["old"]
        else:
            table = case["logp"][(t._step - 1) // case["steps"] % case["iterations"]]
        out = torch.zeros(len(rows), logits_to_keep, dtype=real)
        for k, row in enumerate(rows):
            for j, x in enumerate(table[row][:logits_to_keep]):
                out[k, j] = x
        return out, torch.zeros_like(out)

    t._generate_single_turn, t._get_per_token_logps_and_entropies = generate_single_turn, logps
    for name in ["_generate", "_calculate_rewards", "_generate_and_score_completions", "_prepare_inputs",
                 "_compute_loss"]:
        method = getattr(GRPOTrainer, name)
        method = getattr(method, "__wrapped__", method)  # without the profiler around it
        setattr(t, name, types.MethodType(method, t))
    return t


def play(case, real):
    """A rollout and all its updates; gives what is logged, the advantages and the loss of each update. A rollout of
    several generation batches has the same completions in each."""
    default, permute = torch.get_default_dtype(), torch.randperm
    torch.set_default_dtype(real)
    torch.randperm = lambda n: torch.tensor(case["order"])
    try:
        t = stub_trainer(case, real)
        inputs = [{"prompt": str(i)} for i in range(case["batch"] * case["steps"])]
        steps = max(case["steps"] * case["iterations"], case["accum"])
        losses, advantages, members = [], {}, []
        for step in range(steps):
            batch = t._prepare_inputs(inputs)
            rows = [int(r) - 10 for r in batch["prompt_ids"][:, 0]]
            members.append(rows)
            advantages.update({r: float(a) for r, a in zip(rows, batch["advantages"])})
            loss = float(t._compute_loss(t.model, batch))
            if step % case["accum"] == 0:
                losses.append(0.0)
            losses[-1] += loss
        m = t._metrics["train"]
        logged = {name: m[name][0] for name in ["reward", "reward_std", "frac_reward_zero_std"]}
        functions = [[m[f"rewards/f{k}/mean"][0], m[f"rewards/f{k}/std"][0]] for k in range(len(case["weights"]))]
    finally:
        torch.set_default_dtype(default)
        torch.randperm = permute
    return {"advantages": [advantages[i] for i in range(len(advantages))], "losses": losses, "members": members,
            "old_used": "old_per_token_logps" in batch, "functions": functions, **logged}


# ---- drawn cases ----

def fraction(draw, low, high, parts):
    return draw.randint(low * parts, high * parts) / parts


def draw_given(draw, n, group, functions):
    """Rewards with gaps, equal groups, rows that nobody scored."""
    kind = draw.randrange(4)
    given = []
    for i in range(n):
        if kind == 0:
            row = [float(draw.randrange(2)) for _ in range(functions)]
        elif kind == 1 and i % group:
            row = list(given[-1])
        else:
            row = [fraction(draw, -2, 2, 1024) for _ in range(functions)]
        row = [None if draw.random() < 0.12 else x for x in row]
        if draw.random() < 0.06:
            row = [None] * functions
        given.append(row)
    return given


def draw_case(draw, small):
    batch = draw.choice([1, 2, 3, 4] if small else [2, 4, 6, 8, 16])
    accum = draw.choice([1, 2, 3, 4])
    steps = accum * draw.choice([1, 1, 2]) if small else accum
    iterations = draw.choice([1, 1, 2, 3]) if small else 1
    if small and iterations == 1 and draw.random() < 0.4:
        steps = draw.choice([k for k in range(1, accum + 1) if accum % k == 0])
    n = batch * steps
    groups = [g for g in range(2, n + 1) if n % g == 0]
    if not groups:
        return draw_case(draw, small)
    group, functions = draw.choice(groups), draw.choice([1, 1, 2, 3])
    longest = 4 if small else 1
    tokens = [draw.randint(1, longest) for _ in range(n)]
    order = list(range(n))
    draw.shuffle(order)
    table = lambda: [[-fraction(draw, 0, 3, 64) for _ in range(k)] for k in tokens]
    near = lambda x: [[v + draw.randint(-24, 24) / 64 for v in row] for row in x]
    old = table()
    return {
        "batch": batch, "accum": accum, "steps": steps, "iterations": iterations, "group": group,
        "scale": draw.choice(GROUPINGS), "loss_type": draw.choice(LOSSES), "mask_truncated": draw.random() < 0.4,
        "max_completion": longest + draw.randrange(3), "beta": draw.choice([0.0, 0.0625, 0.25]),
        "epsilon_low": 0.25, "epsilon_high": draw.choice([0.25, 0.375]),
        "weights": [fraction(draw, -1, 2, 64) for _ in range(functions)],
        "given": draw_given(draw, n, group, functions), "tokens": tokens,
        "truncated": [draw.random() < 0.3 for _ in range(n)], "order": order,
        "old": old, "ref": near(old), "logp": [near(old) if k else old for k in range(iterations)],
    }


def number(x):
    return None if x is None or isinstance(x, float) and math.isnan(x) else x


def write(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{path}: {len(rows)} cases, {os.path.getsize(path)} bytes")


def make_advantage(out):
    draw, rows = random.Random(1), []
    for _ in range(160):
        case = draw_case(draw, small=False)
        a, b = play(case, torch.float64), play(case, torch.float32)
        rows.append({
            **{k: case[k] for k in ["group", "scale", "weights", "given"]},
            "advantages": a["advantages"], "advantages32": b["advantages"],
            "functions": [[number(x) for x in f] for f in a["functions"]],
            **{k: a[k] for k in ["reward", "reward_std", "frac_reward_zero_std"]}})
    write(f"{out}/advantage.jsonl", rows)


def make_update(out):
    draw, rows = random.Random(2), []
    for _ in range(96):
        case = draw_case(draw, small=True)
        a, b = play(case, torch.float64), play(case, torch.float32)
        rows.append({**case, "losses": a["losses"], "losses32": b["losses"], "members": a["members"],
                     "old_used": a["old_used"]})
    write(f"{out}/update.jsonl", rows)


def make_prompts(out):
    from trl.trainer.utils import RepeatSampler
    draw, rows = random.Random(3), []
    for _ in range(40):
        case = draw_case(draw, small=True)
        n, prompts = draw.randint(1, 30), case["batch"] * case["steps"] // case["group"]
        taken = list(RepeatSampler(range(n), mini_repeat_count=case["group"], batch_size=prompts,
                                   repeat_count=case["iterations"] * case["steps"], shuffle=False))
        size = case["batch"] * case["steps"]
        repeat = size * case["iterations"] * case["steps"]
        rows.append({**{k: case[k] for k in ["batch", "accum", "steps", "iterations", "group"]}, "items": n,
                     "generations": [taken[i:i + size] for i in range(0, len(taken), repeat)]})
    write(f"{out}/prompts.jsonl", rows)


# ---- texts ----

COMMON = """the a night light moon tonight silver river shiver love above home chrome stone alone sea tea free Straße
ÉTÉ naïve the the of and it's “quoted” done. bright, bright day away say! fly sky why""".split()


def drawn_text(draw, words):
    gaps = [" ", " ", " ", "  ", "\n", "\t", "\u00a0"]
    return "".join(draw.choice(COMMON) + draw.choice(gaps) for _ in range(words))


def drawn_poem(draw):
    lines = []
    for _ in range(draw.randint(0, 14)):
        if lines and draw.random() < 0.2:
            lines.append(draw.choice(lines))
            continue
        line = " ".join(draw.choice(COMMON) for _ in range(draw.randint(0, 9)))
        if draw.random() < 0.2:
            line += draw.choice([" —", " --", "---", " – ", "…", "!?"])
        lines.append(line)
    return "\n".join(lines) * (3 if draw.random() < 0.1 else 1)


def token_f1(text, gold):
    a, b = Counter(text.lower().split()), Counter(gold.lower().split())
    shared = sum((a & b).values())
    if not a and not b:
        return 1.0
    if not shared:
        return 0.0
    precision, recall = shared / sum(a.values()), shared / sum(b.values())
    return 2 * precision * recall / (precision + recall)


def poem(text):
    """As src/grpo/reward_poem.c describes it, from the description alone."""
    import re
    text = re.sub("[\u2012-\u2015]|-{2,}", " ", text)
    bare = lambda word: re.sub(r"^[^a-zA-Z0-9\x80-\U0010ffff]+|[^a-zA-Z0-9\x80-\U0010ffff]+$", "", word)
    rows = []
    for line in text.split("\n"):
        words = [w for w in (bare(w) for w in line.lower().split()) if w]
        if words:
            rows.append((words, len(line.strip())))
    if not rows:
        return 0.0

    def sound(word):
        stem = word
        if re.search("[^aeiouy]e$", word) and len(word) > 2 and re.search("[aeiouy]", word[:-1]):
            stem = word[:-2]
        groups = list(re.finditer("[aeiouy]+", stem))
        return word[groups[-1].start():] if groups else word

    n, last = len(rows), [words[-1] for words, _ in rows]
    rhyme = sum(any(a != b and sound(a) == sound(b) for b in last) for a in last) / n
    tokens = [w for words, _ in rows for w in words]
    diversity = 0.7 * len(set(tokens)) / len(tokens) + 0.3 * min(1, len(set(tokens)) / 20)
    size = len(text.strip())
    length = size / 100 if size < 100 else 1 if size <= 300 else max(0, 1 - (size - 300) / 300)
    first = [words[0] for words, _ in rows[:10]]
    mean = sum(k for _, k in rows) / n
    variance = sum((k - mean) ** 2 for _, k in rows) / n
    coherence = 0.6 * len(set(first)) / len(first) + 0.4 * min(1, variance / 100)
    counts = Counter(tuple(words) for words, _ in rows)
    repetition = min(len(counts) / n, 1 - min(0.5, (max(counts.values()) - 1) / n))
    return (0.25 * rhyme + 0.25 * diversity + 0.20 * length + 0.30 * coherence) * (0.3 + 0.7 * repetition)


def make_text(out):
    import sacrebleu
    draw, rows = random.Random(4), []
    bleu = sacrebleu.metrics.BLEU(smooth_method="add-k", smooth_value=1, tokenize="none", effective_order=True,
                                  force=True)
    for i in range(120):
        gold = drawn_text(draw, draw.randint(0 if i % 9 == 0 else 1, 12))
        text = drawn_text(draw, draw.randint(0, 12))
        if draw.random() < 0.5:  # near the gold
            words = [w for w in gold.split(" ") if draw.random() < 0.8]
            text = " ".join(words + text.split(" ")[:2])
        plain = lambda t: " ".join(t.split())
        score = bleu.sentence_score(plain(text), [plain(gold)]).score / 100 if gold.split() and text.split() else 0.0
        rows.append({"text": text, "gold": gold, "f1": token_f1(text, gold), "bleu": score})
    for _ in range(80):
        text = drawn_poem(draw)
        rows.append({"text": text, "poem": poem(text)})
    write(f"{out}/text.jsonl", rows)


# ---- accuracy ----

GOLDS = ["18", "-5", "1080", "0.5", r"\frac{1}{2}", r"\frac{3}{4}", "2.25", r"\sqrt{2}", r"2\sqrt{3}", "x+1", "x^2-1",
         r"\pi", r"\frac{\pi}{3}", "(1,2)", r"\{1,2\}", "12", "100", "3/4", "7.5", "1000000", "y=2x+1", r"(-\infty,3]"]
WAYS = {  # other ways to write the same, wrong ones behind
    "18": ["18", "18.0", r"18\text{ apples}", "180", "17"], "-5": ["-5", "-5.0", "5"],
    "1080": ["1080", "1,080", "1081"], "0.5": ["0.5", r"\frac{1}{2}", r"\frac12", "0.51"],
    r"\frac{1}{2}": [r"\frac{1}{2}", "0.5", r"\dfrac{2}{4}", r"\frac{1}{3}"],
    r"\frac{3}{4}": [r"\frac{3}{4}", "0.75", "3/4", "4/3"], "2.25": ["2.25", r"\frac{9}{4}", "2.2"],
    r"\sqrt{2}": [r"\sqrt{2}", r"\sqrt2", "2^{1/2}", r"\sqrt{3}"],
    r"2\sqrt{3}": [r"2\sqrt{3}", r"\sqrt{12}", r"3\sqrt{2}"], "x+1": ["x+1", "1+x", "x-1"],
    "x^2-1": ["x^2-1", "(x-1)(x+1)", "x^2+1"], r"\pi": [r"\pi", r"2\pi/2", r"2\pi"],
    r"\frac{\pi}{3}": [r"\frac{\pi}{3}", r"\pi/3", r"\frac{\pi}{6}"], "(1,2)": ["(1,2)", "(1, 2)", "(2,1)"],
    r"\{1,2\}": [r"\{1,2\}", r"\{2,1\}", r"\{1,3\}"], "12": ["12", "12.00", r"\frac{24}{2}", "21"],
    "100": ["100", "10^2", "99"], "3/4": [r"\frac{3}{4}", "0.75", "0.7"], "7.5": ["7.5", r"\frac{15}{2}", "7"],
    "1000000": ["1000000", "1,000,000", "10^6", "100000"], "y=2x+1": ["y=2x+1", "y = 1 + 2x", "y=2x-1"],
    r"(-\infty,3]": [r"(-\infty,3]", r"(-\infty, 3]", r"(-\infty,3)"],
}
FRAMES = [r"So the answer is \boxed{@}.", r"From $3+4$ and $x=2$ follows \boxed{@}", "We get $@$.",
          r"<think>hm \boxed{1}</think> The final answer is $\boxed{@}$.", r"\[ \boxed{@} \]", "I do not know."]


def make_accuracy(out):
    """One box each: TRL takes several boxes for one answer with several parts, where ours takes the last."""
    from trl.rewards import accuracy_reward
    draw, rows = random.Random(5), []
    for gold in GOLDS:
        for way in WAYS[gold]:
            frame = draw.choice(FRAMES[:-1]) if draw.random() < 0.95 else FRAMES[-1]
            rows.append({"gold": gold, "text": frame.replace("@", way)})
    for gold, text in [("yes", "Yes"), ("Paris is nice", " paris is nice\n"), ("yes", "no"), ("The cat", "the dog")]:
        rows.append({"gold": gold, "text": text})
    for row in rows:
        latex = row["gold"] if row["gold"].isalpha() or " " in row["gold"] else f"${row['gold']}$"
        row["trl"] = accuracy_reward([[{"role": "assistant", "content": row["text"]}]], [latex])[0]
    write(f"{out}/accuracy.jsonl", rows)


# ---- a whole update of a tiny decoder ----

TINY = {"layers": 2, "hidden": 16, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn": 16, "vocab": 23, "eps": 1e-5,
        "theta": 10000.0}


def drawn_weight(name, shape):
    """Binary fractions that the test computes by the same formula; norms are about 1."""
    t, n = sum(map(ord, name)), math.prod(shape)
    x = [((i * 37 + t * 101 + i * i % 89 * 13) % 127 - 63) / 128 for i in range(n)]
    if len(shape) == 1:
        x = [1 + v / 4 for v in x]
    return torch.tensor(x, dtype=torch.float64).reshape(shape).requires_grad_()


def tiny_weights(c):
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    shapes = {"embedding": (c["vocab"], c["hidden"])}
    for k in range(c["layers"]):
        shapes |= {f"layers.{k}.attn_norm": (c["hidden"],), f"layers.{k}.qkv_w": (q + 2 * kv, c["hidden"]),
                   f"layers.{k}.out_w": (c["hidden"], q), f"layers.{k}.ffn_norm": (c["hidden"],),
                   f"layers.{k}.gate_up_w": (2 * c["ffn"], c["hidden"]), f"layers.{k}.down_w": (c["hidden"], c["ffn"])}
    shapes["final_norm"] = (c["hidden"],)
    return {name: drawn_weight(name, shape) for name, shape in shapes.items()}


def tiny_norm(x, w, c):
    return x / (x.pow(2).mean(-1, keepdim=True) + c["eps"]).sqrt() * w


def tiny_rope(x, c):  # (T, heads, D)
    half = c["head_dim"] // 2
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None, None] * torch.tensor(
        [c["theta"] ** (-i / half) for i in range(half)], dtype=torch.float64)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def tiny_logps(ids, w, c):
    """Of each token but the first, given those in front of it: one sequence, nothing packed."""
    q, kv, n = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"], len(ids)
    x = w["embedding"][torch.tensor(ids)]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    for k in range(c["layers"]):
        p = {name: w[f"layers.{k}.{name}"]
             for name in ("attn_norm", "qkv_w", "out_w", "ffn_norm", "gate_up_w", "down_w")}
        qkv = tiny_norm(x, p["attn_norm"], c) @ p["qkv_w"].T
        heads = [t.reshape(n, -1, c["head_dim"]) for t in qkv.split([q, kv, kv], -1)]
        qs, ks, vs = tiny_rope(heads[0], c), tiny_rope(heads[1], c), heads[2]
        ks, vs = (t.repeat_interleave(c["heads"] // c["kv_heads"], 1) for t in (ks, vs))
        score = torch.einsum("thd,shd->hts", qs, ks) / math.sqrt(c["head_dim"])
        seen = torch.einsum("hts,shd->thd", score.masked_fill(future, -math.inf).softmax(-1), vs)
        x = x + seen.reshape(n, q) @ p["out_w"].T
        gate, up = (tiny_norm(x, p["ffn_norm"], c) @ p["gate_up_w"].T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ p["down_w"].T
    logits = tiny_norm(x, w["final_norm"], c) @ w["embedding"].T
    return logits.log_softmax(-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def tiny_case(draw, c, lengths, group, answer, kl):
    w, rows, total, kls = tiny_weights(c), [], 0, 0
    for prompt in lengths:
        head = [draw.randrange(c["vocab"]) for _ in range(prompt)]
        for _ in range(group):
            n = draw.randint(1, answer)
            ids = head + [draw.randrange(c["vocab"]) for _ in range(n)]
            logp = tiny_logps(ids, w, c)[prompt - 1:]
            near = [[round((v + draw.gauss(0, 0.3)) * 1024) / 1024 for v in logp.tolist()] for _ in range(2)]
            old, ref = torch.tensor(near, dtype=torch.float64)
            advantage, weight = draw.randint(-8, 8) / 4, draw.randint(1, 16) / 64
            ratio = (logp - old).exp()
            k3 = (ref - logp).exp() - (ref - logp) - 1
            gain = torch.min(ratio * advantage, ratio.clamp(1 - 0.2, 1 + 0.25) * advantage)
            total = total + (weight * (kl * k3 - gain)).sum()
            kls += k3.sum().item()
            rows.append({"prompt": prompt, "ids": ids, "advantage": advantage, "weight": weight, "old": near[0],
                         "ref": near[1], "logp": [float(f"{v:.12g}") for v in logp.tolist()]})
    total.backward()
    return {"group": group, "prompt_tokens": max(lengths), "answer_tokens": answer, "beta": kl, "completions": rows,
            "loss": total.item(), "kl": kls,
            "gradients": {name: [float(f"{v:.7g}") for v in t.grad.flatten().tolist()] for name, t in w.items()}}


def make_model(out):
    draw = random.Random(6)
    rows = [tiny_case(draw, TINY, [9, 5, 7, 1], 4, 12, 0.05), tiny_case(draw, TINY, [2, 14], 6, 5, 0.0)]
    write(os.path.join(out, "model.jsonl"), rows)


PARTS = {"advantage": make_advantage, "update": make_update, "prompts": make_prompts, "text": make_text,
         "accuracy": make_accuracy, "model": make_model}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="tests/grpo/golden")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    for part in options.parts or PARTS:
        PARTS[part](options.out)
