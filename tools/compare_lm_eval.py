#!/usr/bin/env python3
"""compare_lm_eval.py - snug eval --suite against lm-evaluation-harness, item by item, on items drawn by a seed.

    python3 tools/compare_lm_eval.py [N] [SEED] [--parts choices,shots,texts,answers] [--models tally,random,long]
                                                           (needs lm_eval 0.4.13, torch, transformers, datasets)
    python3 tools/compare_lm_eval.py --fixtures tests/suite

Items have the fields of the data sets on the hub and are given to the harness's own task files as local JSON. Three
models: tally, which comes with snug (no BOS token), a random one with a tokenizer that adds BOS and a context so
short that prompts are cut, and a random one with a context that holds the few-shot prompts people quote whole. With
examples (--parts shots) every task has as many as are customary: FEW_SHOT below. The harness computes in double
precision, snug in fp32. Of every item the ids of prompts and continuations must be equal, log-likelihoods within 1e-4
(beyond -100: within 1e-6 of their value, which is where fp32 ends; how many of those are more than 1e-4 apart is
said), answers and what is extracted of them equal; of every task the measures and their standard errors. Perplexity
is compared with the harness and, to 1e-5 relative, with transformers alone. Ends with a line of counts; what differs
makes the exit code 1.

--fixtures writes a few items a task and what the harness makes of them with tally, for tests/suite.
"""
import argparse
import functools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SNUG = os.environ.get("SNUG", os.path.join(ROOT, "snug"))
SUBJECTS = ["anatomy", "high_school_us_history", "sociology"]


def snug(*words):
    done = subprocess.run([SNUG, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"snug {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


# ---- items ----

WORDS = ("the a river stone seven walks under bridge café naïve Zürich number 42 3.5 quick slowly holds beads gives "
         "away each "
         "cousin later evening market Ökonomie 数字 green window's old-fashioned can't I'm THE End").split()


def words(rng, least, most):
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))
    return text + rng.choice(["", "", "", ".", ",", "?", " ", "  and so on"])


def hellaswag(rng, i):
    mark = rng.choice(["", "", " [title]", " [step]", "[header] "])
    return {"ind": i, "activity_label": words(rng, 1, 3), "ctx_a": words(rng, 4, 20) + mark,
            "ctx_b": rng.choice(["", words(rng, 1, 4), "Éa " + words(rng, 1, 2)]),
            "endings": [words(rng, 2, 12) + rng.choice(["", " [substeps] x", " [title] y"]) for _ in range(4)],
            "label": str(rng.randrange(4))}


def arc(rng, i):
    n = rng.choice([3, 4, 4, 4, 5])
    labels = rng.choice(["ABCDE", "12345"])[:n]
    return {"id": f"q{i}", "question": words(rng, 5, 25), "answerKey": rng.choice(labels),
            "choices": {"text": [words(rng, 1, 8) for _ in range(n)], "label": list(labels)}}


def winogrande(rng, i):
    return {"sentence": f"{words(rng, 3, 10)} _ {words(rng, 3, 10)}", "option1": words(rng, 1, 1).strip(),
            "option2": words(rng, 1, 2).strip(), "answer": rng.choice("12")}


def boolq(rng, i):
    return {"question": words(rng, 4, 10), "passage": words(rng, 20, 90), "idx": i, "label": rng.randrange(2)}


def mmlu(rng, i, subject):
    return {"question": rng.choice(["", " ", "\n"]) + words(rng, 5, 30), "subject": subject,
            "choices": [words(rng, 1, 6) for _ in range(4)], "answer": rng.randrange(4)}


def page(rng, i):
    glue = [" , ", " . ", " ( in 1900 ) ", " \" so called \" ", " @-@ ", " @,@ ", " 's ", "\n", " = = x = = \n",
            " [ a ] ", " ; "]
    return {"page": "".join(words(rng, 3, 12) + rng.choice(glue) for _ in range(rng.randint(1, 60)))}


def problems(n, seed, part):
    """tally's own problems in gsm8k's fields, with the marks of its turns, so that some answers are right."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.jsonl")
        snug("problems", "--n", n, "--roles", "solve", "--part", part, "--seed", seed, "--out", path)
        rows = [json.loads(line) for line in open(path)]
    return [{"question": "<|user|>" + r["messages"][0]["content"] + "<|end|><|assistant|>",
             "answer": r["messages"][1]["content"] + "\n#### " + str(r["id"]["answer"])} for r in rows]


def write(path, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def draw(folder, n, seed, shots):
    rng = random.Random(seed)
    for task, make, split in (("hellaswag", hellaswag, "validation"), ("arc_easy", arc, "test"),
                              ("arc_challenge", arc, "test"), ("winogrande", winogrande, "validation"),
                              ("boolq", boolq, "validation")):
        items = [make(rng, i) for i in range(n)]
        train = [make(rng, i) for i in range(shots)]
        train[1] = items[0]  # an item that could be drawn as its own example
        write(f"{folder}/{task}/{split}.jsonl", items)
        write(f"{folder}/{task}/train.jsonl", train)
    each = -(-n // len(SUBJECTS))
    write(f"{folder}/mmlu/test.jsonl", [mmlu(rng, i, s) for s in SUBJECTS for i in range(each)])
    write(f"{folder}/mmlu/dev.jsonl", [mmlu(rng, i, s) for s in SUBJECTS for i in range(5)])
    write(f"{folder}/gsm8k/test.jsonl", problems(n, seed + 7, "held-out"))
    write(f"{folder}/gsm8k/train.jsonl", problems(shots, seed + 8, "train"))
    write(f"{folder}/pages.jsonl", [page(rng, i) for i in range(n)])


# ---- the harness ----

def specs(folder, work, tasks):
    """The harness's own task files, reading local files instead of the hub's."""
    all_specs = []
    for task in tasks:
        if task == "mmlu":
            for subject in SUBJECTS:
                files = {}
                for split in ("test", "dev"):
                    rows = [json.loads(line) for line in open(f"{folder}/mmlu/{split}.jsonl")]
                    files[split] = f"{work}/mmlu-{subject}-{split}.jsonl"
                    write(files[split], [r for r in rows if r["subject"] == subject])
                all_specs.append(("mmlu_" + subject, files))
        elif task == "wikitext":
            all_specs.append((task, {split: f"{folder}/pages.jsonl" for split in ("train", "validation", "test")}))
        else:
            splits = {"arc_easy": "test", "arc_challenge": "test", "gsm8k": "test"}
            files = {split: f"{folder}/{task}/{split}.jsonl" for split in ("train", splits.get(task, "validation"))}
            if task.startswith("arc"):
                files["validation"] = files["train"]
            all_specs.append((task, files))
    return [own_task(name, files, work) for name, files in all_specs]


@functools.cache
def manager():
    import lm_eval.tasks
    return lm_eval.tasks.TaskManager()


def own_task(name, files, work):
    """A task file that takes over the harness's and says where the rows are."""
    entry = manager()._index[name]
    path = f"{work}/task-{name}.yaml"
    with open(path, "w") as f:
        f.write(f"include: {entry.yaml_path}\ntask: {name}\ndataset_path: json\ndataset_name: null\n"
                f"dataset_kwargs: {json.dumps({'data_files': files})}\n")
    return path


def run_harness(lm, folder, work, tasks, shots):
    import lm_eval
    return lm_eval.simple_evaluate(model=lm, tasks=specs(folder, work, tasks), num_fewshot=shots, log_samples=True,
                                   bootstrap_iters=100, task_manager=manager())


def expected_items(lm, results):
    """What snug eval --items must write, by task and item."""
    items = {}
    for task, samples in results["samples"].items():
        for s in samples:
            key = (task, s["doc_id"])
            args = s["arguments"] if isinstance(s["arguments"], (list, tuple)) else list(s["arguments"].values())
            if task == "gsm8k":
                new = items.setdefault(key, {"answer": s["resps"][0][0], "extracted": {}, "scores": {}, "requests": []})
                new["extracted"][s["filter"]] = s["filtered_resps"][0]
                new["scores"][s["filter"]] = float(s["exact_match"])
                ids = lm.tok_encode(args[0][0], left_truncate_len=lm.max_length - lm.max_gen_toks)
                new["requests"] = [{"prompt_ids": ids}]
            elif task == "wikitext":
                items[key] = {"logp": s["resps"][0][0] if not isinstance(s["resps"][0][0], (list, tuple))
                              else s["resps"][0][0][0]}
            else:
                requests = []
                for (context, continuation), resp in zip(args, s["resps"]):
                    before, after = lm._encode_pair(context, continuation)
                    before = before[max(0, len(before) + len(after) - lm.max_length - 1):]
                    requests.append({"prompt_ids": before, "ids": after, "logp": float(resp[0][0])})
                scores = {m: float(s[m]) for m in ("acc", "acc_norm") if m in s}
                items[key] = {"requests": requests, "scores": scores}
    return items


# ---- comparing ----

class Counts:
    def __init__(self):
        self.items = self.requests = self.bad = self.beyond = 0
        self.worst = 0.0

    def differ(self, *what):
        self.bad += 1
        if self.bad <= 20:
            print("differs:", *what)


def compare_item(c, key, want, got):
    c.items += 1
    if len(want["requests"]) != len(got["requests"]):
        return c.differ(key, "number of requests")
    for i, (w, g) in enumerate(zip(want["requests"], got["requests"])):
        c.requests += 1
        if w["prompt_ids"] != g["prompt_ids"] or w.get("ids") != g.get("ids"):
            c.differ(key, i, "ids", w, g)
        if "logp" in w:
            c.worst = max(c.worst, abs(w["logp"] - g["logp"]))
            c.beyond += abs(w["logp"] - g["logp"]) > 1e-4
            if not abs(w["logp"] - g["logp"]) <= 1e-6 * max(100, abs(w["logp"])):
                c.differ(key, i, "logp", w["logp"], g["logp"])
    for field in ("answer", "extracted", "scores"):
        if field in want and want[field] != got[field]:
            c.differ(key, field, want[field], got[field])


def compare_measures(c, want, got):
    for name, value in want.items():
        if "," not in name:
            continue
        mine = got.get(name)
        same = mine == value if isinstance(value, str) or isinstance(mine, str) else (
            mine is not None and abs(mine - value) <= 1e-6 * max(1, abs(value)))
        if not same:
            c.differ("measure", name, value, mine)


def compare_group(c, results, mine):
    from lm_eval.api.metrics import aggregate_subtask_metrics, pooled_sample_stderr
    tasks = ["mmlu_" + s for s in SUBJECTS]
    sizes = [results["n-samples"][t]["effective"] for t in tasks]
    values = [results["results"][t]["acc,none"] for t in tasks]
    errors = [results["results"][t]["acc_stderr,none"] for t in tasks]
    compare_measures(c, {"acc,none": aggregate_subtask_metrics(values, sizes),
                         "acc_stderr,none": float(pooled_sample_stderr(errors, sizes))}, mine["results"]["mmlu"])


def run_snug(model, folder, work, suites, shots, *more):
    items = f"{work}/items.jsonl"
    words_ = ["eval", "--model", model, "--suite", ",".join(suites), "--suite-data", folder, "--precision", "fp32",
              "--json",
              "--items", items, "--device", "cpu", *more]
    if shots is not None:
        words_ += ["--num-fewshot", shots]
    out = json.loads(snug(*words_))
    rows = [json.loads(line) for line in open(items)]
    return out, {(r["task"], r["doc_id"]): r for r in rows}


def compare_texts(c, lm, model, folder, work, results):
    import torch
    out, items = run_snug(model, folder, work, ["perplexity"], None, "--data", f"{folder}/pages.jsonl")
    mine, theirs = out["results"]["perplexity"], results["results"]["wikitext"]
    for name in ("word_perplexity,none", "byte_perplexity,none", "bits_per_byte,none"):
        if abs(mine[name] / theirs[name] - 1) > 1e-5:
            c.differ(name, theirs[name], mine[name])
    total = tokens = 0
    for (task, doc), got in sorted(items.items()):
        logp = sum(r["logp"] for r in got["requests"])
        want = 0.0
        for r in got["requests"]:
            ids = r["prompt_ids"] + r["ids"]
            with torch.no_grad():
                logits = lm.model(torch.tensor([ids[:-1]])).logits[0].double()
            scores = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
            want += float(scores[len(r["prompt_ids"]) - 1:].sum())
            total += float(scores[len(r["prompt_ids"]) - 1:].sum())
            tokens += len(r["ids"])
        c.items += 1
        if abs(logp / want - 1) > 1e-5:
            c.differ("perplexity", doc, want, logp)
    want = math.exp(-total / tokens)
    relative = abs(mine["token_perplexity,none"] / want - 1)
    print(f"  token perplexity {want:.6f} by transformers, {relative:.1e} apart; word perplexity "
          f"{theirs['word_perplexity,none']:.6g} "
          f"by the harness, {abs(mine['word_perplexity,none'] / theirs['word_perplexity,none'] - 1):.1e} apart")
    if relative > 1e-5:
        c.differ("token perplexity", want, mine["token_perplexity,none"])


CHOICES = ["hellaswag", "arc_easy", "arc_challenge", "winogrande", "boolq", "mmlu"]
# As many examples as people quote results with (boolq: none are customary).
FEW_SHOT = [(25, ["arc_easy", "arc_challenge"]), (10, ["hellaswag"]), (5, ["winogrande", "mmlu"]), (3, ["boolq"])]


def compare(c, lm, model, folder, work, tasks, shots):
    results = run_harness(lm, folder, work, tasks, shots)
    suites = ["arc" if t == "arc_easy" else t for t in tasks if t != "arc_challenge"]
    out, items = run_snug(model, folder, work, suites, shots)
    want = expected_items(lm, results)
    if set(want) != set(items):
        c.differ("items", len(want), len(items))
    for key in want:
        if key in items:
            compare_item(c, key, want[key], items[key])
    for task, measures in results["results"].items():
        compare_measures(c, measures, out["results"][task])
    if "mmlu" in tasks:
        compare_group(c, results, out)
    kept = {t: {k: round(v, 4) for k, v in m.items() if k.endswith("none") or k.startswith("exact")
                if isinstance(v, float) and "stderr" not in k} for t, m in results["results"].items()}
    print(f"  {shots} shots: {kept}")


# ---- models ----

def open_harness(model):
    from lm_eval.models.huggingface import HFLM
    rows = 64 if json.load(open(f"{model}/config.json"))["max_position_embeddings"] <= 1024 else 8
    return HFLM(pretrained=model, dtype="float64", device="cpu", batch_size=rows)


def make_model(folder, positions, spread):
    """A random model whose tokenizer adds BOS, and which sees that many tokens. spread: deviation of its weights."""
    words_ = f"{folder}/words"
    os.makedirs(words_, exist_ok=True)
    shutil.copy(os.path.join(ROOT, "tests/data/tok_llama2/tokenizer.json"), words_)
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
               "unk_token": "<unk>"},
              open(f"{words_}/tokenizer_config.json", "w"))
    sets = ["num_hidden_layers=2", "hidden_size=64", "num_attention_heads=4", "num_key_value_heads=2",
            "intermediate_size=96",
            "vocab_size=512", f"max_position_embeddings={positions}", f"initializer_range={spread}", "bos_token_id=1",
            "eos_token_id=2"]
    more = [w for s in sets for w in ("--set", s)]
    out = f"{folder}/random-{positions}"
    snug("init", "--model", "llama-2-7b", "--out", out, "--dtype", "fp32", "--tokenizer", words_, *more)
    return out


def write_fixtures(lm, folder, to, model):
    """A few items a task, and what the harness makes of them."""
    data = os.path.join(to, "data")
    shutil.rmtree(data, ignore_errors=True)
    draw(data, 3, 11, 6)
    lines = []
    for shots, tasks in ((0, CHOICES), (2, CHOICES + ["gsm8k"]), (5, ["winogrande", "mmlu", "gsm8k"])):
        results = run_harness(lm, data, folder, tasks, shots)
        for (task, doc), item in sorted(expected_items(lm, results).items()):
            for r in item["requests"]:
                if "logp" in r:
                    r["logp"] = round(r["logp"], 5)
            lines.append({"shots": shots, "task": task, "doc_id": doc, **item})
        for task, measures in sorted(results["results"].items()):
            lines.append({"shots": shots, "task": task, "measures": {k: v for k, v in measures.items() if "," in k}})
    results = run_harness(lm, data, folder, ["wikitext"], None)["results"]["wikitext"]
    lines.append({"task": "perplexity", "measures": {k: v for k, v in results.items() if k.endswith(",none")}})
    with open(os.path.join(to, "expected.jsonl"), "w") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("n", nargs="?", type=int, default=200)
    p.add_argument("seed", nargs="?", type=int, default=1)
    p.add_argument("--fixtures")
    p.add_argument("--parts", default="choices,shots,texts,answers", help="what is compared (all take many minutes)")
    p.add_argument("--models", default="tally,random,long")
    a = p.parse_args()
    import logging
    logging.disable(logging.WARNING)
    c = Counts()
    tally = os.path.join(ROOT, "models/tally")
    with tempfile.TemporaryDirectory() as work:
        if a.fixtures:
            write_fixtures(open_harness(tally), work, a.fixtures, tally)
            return
        folder = f"{work}/data"
        draw(folder, a.n, a.seed, 40)
        for name in a.models.split(","):
            print(name)
            # transformers rounds rope's frequencies twice (fp32 pow), snug once: at position 2,800 angles are up to
            # 2e-4 apart, which weights as wide as random's turn into 3e-4 of a log-likelihood.
            model = tally if name == "tally" else make_model(work, *((192, 0.2) if name == "random" else (8192, 0.05)))
            lm = open_harness(model)
            if "choices" in a.parts:
                compare(c, lm, model, folder, work, CHOICES, 0)
            for shots, tasks in FEW_SHOT if "shots" in a.parts else ():
                compare(c, lm, model, folder, work, tasks, shots)
            if "texts" in a.parts:
                compare_texts(c, lm, model, folder, work, run_harness(lm, folder, work, ["wikitext"], None))
            for shots in (0, 5) if name == "tally" and "answers" in a.parts else ():
                compare(c, lm, model, folder, work, ["gsm8k"], shots)
    print(f"{c.items} items, {c.requests} requests, largest difference of a log-likelihood {c.worst:.1e} "
          f"({c.beyond} above 1e-4), "
          f"{c.bad} differences")
    sys.exit(1 if c.bad else 0)


if __name__ == "__main__":
    main()
