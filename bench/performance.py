#!/usr/bin/env python3
"""performance.py [--check] - the tables of docs/performance.md, made from bench/results/*.jsonl.

A table stands between "<!-- table: NAME -->" and "<!-- end -->" and is written again from the last line of each
measurement. The last column names the line, file:number, as it stands in bench/results; results are only ever added.
--check writes nothing and fails when the page is not what the results give.
"""
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30


def lines(file):
    """The results of a file; each knows its place."""
    path = ROOT / "bench" / "results" / f"{file}.jsonl"
    found = [json.loads(text) for text in path.read_text().splitlines()]
    for number, line in enumerate(found, 1):
        line["at"] = f"{file}:{number}"
    return found


def last(found, **want):
    """The last line with these values; None: there is none."""
    fitting = [r for r in found if all(r.get(k) == v for k, v in want.items())]
    return fitting[-1] if fitting else None


def table(head, rows):
    rule = "|" + "---|" * len(head)
    return "\n".join(["| " + " | ".join(head) + " |", rule] + ["| " + " | ".join(r) + " |" for r in rows])


def count(x):
    return f"{x:,.0f}"


def off(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.0f} %" if predicted else ""


def gib(x):
    return f"{x / GIB:.2f}"


# ---- a GPU ----

TRAIN = [  # name in the results, words
    ("0.5B full b8 s1024", "0.5B full, 8 x 1024"),
    ("0.5B full b32 s1024 accum 4", "0.5B full, 32 x 1024 x 4"),
    ("1.5B full b8 s1024", "1.5B full, 8 x 1024"),
    ("1.5B full b16 s1024 accum 4", "1.5B full, 16 x 1024 x 4"),
    ("7B LoRA r128 b2 s2048", "7B LoRA r128, 2 x 2048"),
    ("7B LoRA r128 b2 s2048 block", "7B LoRA r128, 2 x 2048, block recompute"),
    ("7B LoRA r128 b1 s1536 block", "7B LoRA r128, 1 x 1536 x 16, block recompute"),
    ("7B LoRA r16 b2 s4096", "7B LoRA r16, 2 x 4096"),
    ("7B full b4 s2048 block", "7B full, 4 x 2048, block recompute"),
    ("7B full b4 s2048 norm", "7B full, 4 x 2048, norm recompute"),
]


def gpu_train():
    found = lines("gpu-train-h200")
    rows = []
    for name, words in TRAIN:
        ours = last([r for r in found if "snug" in r], name=name, mode="fast")
        peer = last([r for r in found if "peer" in r], name=name)
        s = ours["snug"]
        row = [words, count(s["tokens_per_s"]), off(s.get("predicted_tokens_per_s"), s["tokens_per_s"]),
               gib(s["process_measured_bytes"]), gib(s["process_planned_bytes"])]
        if peer:
            same = "" if peer["commit"] == ours["commit"] else "~"
            row += [count(peer["peer"]["tokens_per_s"]), gib(peer["peer"]["device_bytes"]),
                    f"{same}{s['tokens_per_s'] / peer['peer']['tokens_per_s']:.2f}x"]
        else:
            row += ["", "", ""]
        rows.append(row + [ours["at"] + (f", {peer['at'].split(':')[1]}" if peer else "")])
    return table(["job", "tokens/s", "predicted", "device GiB", "planned GiB", "peer tokens/s", "peer GiB", "ratio",
                  "line"], rows)


def gpu_memory():
    found = lines("gpu-memory-h200")
    drawn = [r for r in found if r["commit"] == found[-1]["commit"]]
    exact = sum(r["snug"]["planned_bytes"] == r["snug"]["measured_bytes"] for r in drawn)
    room = [r["snug"]["process_planned_bytes"] - r["snug"]["process_measured_bytes"] for r in drawn]
    return table(["configurations", "arena planned = measured", "process above its plan", "most below it", "lines"],
                 [[str(len(drawn)), str(exact), str(sum(x < 0 for x in room)), f"{max(room) / 2**20:.0f} MiB",
                   f"{drawn[0]['at']} to {drawn[-1]['at'].split(':')[1]}"]])


def gpu_budget():
    jobs = {"full": "all weights", "lora": "LoRA r16", "qlora": "QLoRA r16, NF4"}
    latest = {}
    for r in lines("gpu-budget-h200"):
        if r.get("mode") and "--global-batch 4" in r["command"]:
            latest[r["mode"], int(r["budget"].removesuffix("GiB"))] = r
    rows = []
    for (mode, budget), r in sorted(latest.items(), key=lambda p: (list(jobs).index(p[0][0]), p[0][1])):
        s = r["snug"]
        rows.append([jobs[mode], f"{budget} GiB", gib(s["process_measured_bytes"]), count(s["tokens_per_s"]),
                     off(s["predicted_tokens_per_s"], s["tokens_per_s"]), str(s["steps"]), f"`{s['plan']}`", r["at"]])
    return table(["job", "`--budget`", "device GiB", "tokens/s", "predicted", "steps", "chosen by the planner", "line"],
                 rows)


def gpu_rows():
    rows = []
    for r in lines("gpu-budget-h200"):
        if r.get("mode"):
            continue
        words, s = r["command"].split(), r["snug"]
        value = lambda flag: words[words.index(flag) + 1]
        rows.append([value("--budget"), count(int(value("--seq"))), count(s["process_measured_bytes"]),
                     count(s["process_planned_bytes"]), count(s["tokens_per_s"]),
                     off(s["predicted_tokens_per_s"], s["tokens_per_s"]), r["at"]])
    rows.sort(key=lambda r: int(r[0][:-2]))
    return table(["`--budget`", "tokens in a row", "device bytes", "planned", "tokens/s", "predicted", "line"], rows)


GENERATE = [  # name in the results, words
    ("7B bf16 batch 1", "one answer, bf16"),
    ("7B int8 batch 1", "one answer, int8"),
    ("7B int8 batch 1, int8 head", "one answer, int8, int8 head"),
    ("7B nf4 batch 1", "one answer, NF4"),
    ("7B nf4 batch 1, int8 head", "one answer, NF4, int8 head"),
    ("7B bf16 batch 1 sampled", "one answer, bf16, sampled (0.7, top-p, top-k)"),
    ("7B bf16 batch 1 after 2048", "one answer, bf16, behind 2,048 tokens"),
    ("7B int8 batch 8", "8 at a time, int8"),
    ("7B bf16 batch 16", "16 at a time, bf16"),
    ("7B int8 in 12 GiB", "16 at a time, int8, `--budget 12GiB`"),
    ("7B bf16 batch 64", "64 at a time, bf16"),
    ("7B int8 batch 64", "64 at a time, int8"),
    ("7B nf4 batch 64", "64 at a time, NF4"),
    ("7B bf16 prefill 2048", "prompts of 2,048 tokens, bf16"),
    ("7B int8 prefill 2048", "prompts of 2,048 tokens, int8"),
]


def gpu_generate():
    found = lines("gpu-generate-h200")
    rows = []
    for name, words in GENERATE:
        r = last(found, name=name)
        s = r["snug"]
        rate = r["prefill_tokens_per_s"] if "prefill" in name else r["decode_tokens_per_s"]
        rows.append([words, count(rate), gib(s["process_measured_bytes"]), gib(s["process_planned_bytes"]), r["at"]])
    return table(["", "tokens/s", "device GiB", "planned GiB", "line"], rows)


def gpu_attend():
    found = lines("gpu-attend-h200")
    rows = []

    def row(words, dim, pair):
        cells, places = [], []
        for seq in (1024, 2048, 4096, 8192):
            forward, backward, at = pair(dim, seq)
            cells.append(f"{forward:.0f} / {backward:.0f}")
            places += at
        first = places[0].split(":")[0]
        rows.append([f"{words}, heads of {dim}"] + cells + [f"{first}:{','.join(p.split(':')[1] for p in places)}"])

    def plain(by):
        def pair(dim, seq):
            f, b = (last(found, op=op, by=by, dim=dim, seq=seq) for op in ("attend", "attend_grad"))
            return f["tflops"], b["tflops"], [f["at"], b["at"]]
        return pair

    def wgmma(dim, seq):
        r = last(found, kind="best", dim=dim, seq=seq, doc=0)
        return r["forward"], r["backward"], [r["at"]]

    for dim in (64, 128):
        row("own, wgmma (9.0), best of the sweep", dim, wgmma)
        row("own, mma.sync (8.0 on)", dim, plain("own"))
        row("cuDNN 9.14", dim, plain("cudnn"))
    return table(["forward / backward, TFLOP/s", "1024", "2048", "4096", "8192", "lines"], rows)


# ---- the CPU ----


def cpu():
    rows = []
    add = lambda *cells: rows.append(list(cells))
    train = lines("cpu-train")
    for shape, words in (("smollm2-135m", "SmolLM2-135M, 1 x 512"), ("stories-15m", "15M Llama, 4 x 256")):
        r = last(train, shape=shape)
        ours, peer = r["snug"], r["peer"]
        add(f"training, {words}, fp32",
            f"{count(ours['tokens_per_s'])} tokens/s, {ours['process_measured_bytes'] / 1e9:.1f} GB",
            f"PyTorch: {count(peer['tokens_per_s'])} tokens/s, {peer['peak_rss_bytes'] / 1e9:.1f} GB",
            f"{ours['tokens_per_s'] / peer['tokens_per_s']:.2f}x", r["at"])
    generate = lines("cpu-generate")
    for key, tokens, words in (("decode", 64, "answering: 64 tokens, one by one"),
                               ("prefill", 512, "reading a prompt of 512 tokens")):
        for dtype in ("fp32", "bf16", "int8", "nf4"):
            r = last(generate, dtype=dtype, threads=1)
            ours, peer = r["snug"][f"{key}_cpu_s"], r["llama_cpp"][f"{key}_cpu_s"]
            add(f"{words}, SmolLM2-135M, {dtype}, 1 thread", f"{count(tokens / ours)} tokens a processor second",
                f"llama.cpp, {r['llama_cpp_dtype']}: {count(tokens / peer)}", f"{peer / ours:.2f}x", r["at"])
    r = lines("cpu-tokenizer")[-1]
    speed = lambda side, what: next(x["MB_per_s"] for x in r[side] if x["what"] == what)
    for what, words in (("encode whole", "encoding a text"), ("encode lines", "encoding line by line"),
                        ("decode", "decoding")):
        ours, peer = speed("snug", what), speed("peer", what)
        add(f"{words}, 1 thread", f"{ours} MB/s", f"HF tokenizers: {peer} MB/s", f"{ours / peer:.1f}x", r["at"])
    r = lines("smatch")[-1]
    add(f"SMATCH of {count(r['pairs'])} pairs, with proofs, 1 thread", f"{r['cpu_s']:.1f} s",
        f"{r['peer']}, without: {r['peer_cpu_s']:.1f} s", f"{r['ratio']:.0f}x", r["at"])
    for kind in ("text", "messages"):
        r = last(lines("cpu-scan"), kind=kind)
        add(f"scanning JSON lines, `{kind}` rows", f"{count(r['scan_MB_per_s'])} MB/s",
            f"reading and finding line ends: {count(r['read_MB_per_s'])} MB/s",
            f"{r['scan_MB_per_s'] / r['read_MB_per_s']:.2f}", r["at"])
    for into, words in (("bf16", "bf16 as on file"), ("fp32", "bf16 into fp32")):
        r = last(lines("cpu-load"), into=into)
        add(f"loading safetensors, {words}", f"{count(r['load_MB_per_s'])} MB/s",
            f"reading the same files: {count(r['read_MB_per_s'])} MB/s", f"{r['ratio']:.2f}", r["at"])
    for model in ("qwen2.5-0.5b", "qwen2.5-7b", "llama-3.1-70b"):
        for options, words in (("--mode full", "all weights"),
                               ("--mode lora --lora-rank 16 --recompute block", "adapters, block recompute")):
            r = last(lines("cpu-plan"), model=model, options=options)
            add(f"planning {model}, {words}", f"{r['plan_ms']:.1f} ms", f"{r['steps']} steps, {r['tensors']} tensors",
                "", r["at"])
    return table(["what", "snug", "floor or peer", "ratio", "line"], rows)


def cpu_machine():
    load = lambda file: lines(file)[-1]["load"]
    return (f"On {lines('cpu-plan')[-1]['machine']}; SMATCH on {lines('smatch')[-1]['machine']}. Load average when "
            f"measured: {load('cpu-train')} (training), {last(lines('cpu-generate'), threads=1)['load']} (generation), "
            f"{load('cpu-scan')} (rows, files, plans), {load('growth')} (growth), {load('smatch')} (SMATCH).")


def growth():
    rows = []
    latest = {(r["what"], r["series"]): r for r in lines("growth")}
    for (what, series), r in latest.items():
        rows.append([f"[{what.replace('-', ' ')}](images/growth-{what}.svg)", series, f"{r['exponent']:.2f}",
                     f"{r['at_end']:.2f}", r["at"]])
    return table(["what", "of", "exponent", "upper half", "line"], rows)


TABLES = {
    "gpu-train": gpu_train, "gpu-memory": gpu_memory, "gpu-budget": gpu_budget, "gpu-rows": gpu_rows,
    "gpu-generate": gpu_generate, "gpu-attend": gpu_attend, "cpu": cpu, "cpu-machine": cpu_machine, "growth": growth,
}


def main():
    page = ROOT / "docs" / "performance.md"
    old, out, skipping = page.read_text(), [], False
    for text in old.splitlines():
        if text == "<!-- end -->":
            skipping = False
        if not skipping:
            out.append(text)
        if text.startswith("<!-- table: "):
            out.append(TABLES[text.split()[2]]())
            skipping = True
    new = "\n".join(out) + "\n"
    if "--check" in sys.argv[1:]:
        if new != old:
            sys.exit("docs/performance.md is not what bench/results gives: run bench/performance.py")
    elif new != old:
        page.write_text(new)


main()
