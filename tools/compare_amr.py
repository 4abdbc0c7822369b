#!/usr/bin/env python3
"""compare_amr.py - our PENMAN reader and SMATCH against the packages penman and smatch, on graphs drawn by a seed.

    python3 tools/compare_amr.py penman [N] [SEED]     (needs penman 1.3)
    python3 tools/compare_amr.py smatch [N] [SEED]     (needs smatch 1.0.4)

penman: whole and broken texts. Both must accept the same ones; of those the top, the triples, the metadata, the tree as
it is printed, and for valid graphs what penman.encode(penman.decode(...)) prints (but see keeps_layout), must be equal.
smatch: pairs of graphs. Triple counts must be equal, matches never below smatch's, and equal wherever smatch found what
we proved to be the best. Each ends with a line of counts; what differs stands before it and makes the exit code 1.
"""
import io
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import amr_lib

SNUG = os.environ.get("SNUG", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "snug"))


def run(*words):
    done = subprocess.run([SNUG, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"snug {' '.join(words)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


# ---- penman ----

def draw_text(rng):
    """A text of one block: no empty line inside, no comment behind the graph, not only blanks."""
    if rng.random() < 0.3:
        text = amr_lib.odd(rng)
    else:
        graph = amr_lib.draw_graph(rng, rng.choice([1, 1, 2, 3, 5, 8, 13, 25]))
        text = amr_lib.write(rng, graph, tidy=rng.random() < 0.3)
    if rng.random() < 0.4:
        text = amr_lib.aligned(rng, text)
    if rng.random() < 0.6:
        text = amr_lib.broken(rng, text, rng.choice([1, 1, 2, 3, 6]))
    lines = [l for l in re.split("\r\n|\r|\n", text) if l.strip(" \t\v\f")]
    return rng.choice(["\n", "\n", "\r\n", "\r"]).join(lines)


def is_one_block(text):
    """Our corpus reader makes a block of it as it stands: graph, comments without ::key inside, or none."""
    graph = False
    for line in re.split("\r\n|\r|\n", text):
        comment = line.lstrip(" \t\v\f").startswith("#")
        if comment and graph and "::" in line:
            return False
        graph |= not comment
    return graph and bool(text.strip())


def theirs(text):
    """What penman makes of it; None: refused."""
    import penman
    from penman import layout
    from penman.codec import PENMANCodec
    from penman.models.amr import model
    codec = PENMANCodec(model=model)
    try:
        trees = codec.iterparse(io.StringIO(text, newline=None))
        tree = next(trees)
    except (penman.DecodeError, StopIteration):
        return None
    graph = layout.interpret(tree, model)
    bare = penman.Graph(graph.triples, top=graph.top, epidata=graph.epidata)
    return {"top": graph.top, "triples": [list(t) for t in graph.triples], "metadata": dict(tree.metadata),
            "graph": codec.format(penman.Tree(tree.node)), "encoded": lambda: codec.encode(bare)}


def compare_penman(n, seed):
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    texts = []
    while len(texts) < n:
        text = draw_text(rng)
        if is_one_block(text):
            texts.append(text)
    with tempfile.NamedTemporaryFile("w", suffix=".amr", delete=False, encoding="utf-8", newline="") as f:
        f.write("\n\n".join(texts))
    ours = [json.loads(line) for line in run("amr", "triples", f.name).splitlines()]
    os.unlink(f.name)
    if len(ours) != n:
        sys.exit(f"{n} texts were written, {len(ours)} blocks read")
    count = {"texts": n, "accepted by both": 0, "refused by both": 0, "valid": 0, "differ": 0}
    for text, our in zip(texts, ours):
        their = theirs(text)
        if ("graph" in our) != (their is not None):
            count["differ"] += 1
            verdict = "refuses" if their is None else "accepts"
            print(f"acceptance differs: {our.get('fault')}; penman {verdict}: {text!r}")
        elif their is None:
            count["refused by both"] += 1
        else:
            count["accepted by both"] += 1
            count["valid"] += our["valid"]
            bad = [k for k in ("top", "triples", "graph", "metadata") if our[k] != their[k]]
            if our["valid"] and keeps_layout(our) and our["graph"] != their["encoded"]():
                bad.append("encoded")
            if bad:
                count["differ"] += 1
                print(f"{bad} differ: {text!r}\n  ours   {[our.get(k) for k in bad]}")
                print(f"  theirs {[their[k] for k in bad if k != 'encoded']}")
    print("penman:", ", ".join(f"{v} {k}" for k, v in count.items()))
    return count["differ"] == 0


def keeps_layout(our):
    """Whether penman.encode writes the graph as it was read. It loses the layout of a triple that stands twice, undoes
    an inversion too much in roles such as :x-of-of and in inverse roles of a node with itself, and drops zeros in front
    of an alignment's numbers. Our printer keeps them."""
    triples = [tuple(t) for t in our["triples"]]
    other = re.search(r"(?<!:consist)(?<!:prep-out)(?<!:prep-on-behalf)-of-of|~[a-z]?\.?0\d|,0\d", our["graph"])
    itself = any(s == t and r != ":instance" for s, r, t in triples)
    return len(set(triples)) == len(triples) and not other and not itself


# ---- smatch ----

def draw_pairs(rng, n):
    """Pairs of which no graph has a triple twice: smatch counts those squared."""
    few = ["want-01", "go-02", "boy"]
    pairs = []
    while len(pairs) < n:
        size, few_words = rng.choice([2, 4, 6, 8, 10, 12, 15, 20, 30]), rng.random() < 0.25
        concepts = few if few_words else amr_lib.CONCEPTS
        gold = amr_lib.draw_graph(rng, size, concepts=concepts)
        kind = rng.random()
        if kind < 0.75:
            predicted = amr_lib.changed(rng, gold, rng.randrange(0, size + 1), concepts=concepts)
        else:
            predicted = amr_lib.draw_graph(rng, rng.choice([2, 4, 8, 12, 20]), concepts=concepts)
        texts = [amr_lib.write(rng, g, tidy=True) for g in (gold, predicted)]
        if all(is_plain(t) for t in texts):
            pairs.append(texts)
    return pairs


def is_plain(text):
    """smatch reads it, and no triple stands twice."""
    import amr
    graph = amr.AMR.parse_AMR_line(text)
    if graph is None:
        return False
    graph.rename_node("x")
    instances, attributes, relations = graph.get_triples()
    norm = lambda x: x.lower().rstrip("_")
    edges = [(norm(r), a, b) for r, a, b in relations]
    values = [(norm(r), a, norm(b)) for r, a, b in attributes]
    return len(set(edges)) == len(edges) and len(set(values)) == len(values)


def compare_smatch(n, seed):
    import smatch
    rng = random.Random(seed)
    pairs = draw_pairs(rng, n)
    folder = tempfile.mkdtemp()
    paths = [os.path.join(folder, name) for name in ("gold.amr", "pred.amr")]
    for side, path in enumerate(paths):
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n\n".join(p[side] for p in pairs) + "\n")
    ours = json.loads(run("smatch", *paths, "--per-document", "--json"))
    count = {"pairs": n, "proved": ours["proved"], "equal": 0, "ours above": 0, "ours below": 0, "other counts": 0,
             "equal parts": 0, "ours above in parts": 0, "ours below in parts": 0}
    parts = {"justattribute": [0, 0, 0], "justrelation": [0, 0, 0], "justinstance": [0, 0, 0]}
    for (gold, predicted), our in zip(pairs, ours["documents"]):
        smatch.match_triple_dict.clear()
        matched, n_predicted, n_gold = smatch.get_amr_match(predicted, gold)
        for name, total in parts.items():
            smatch.match_triple_dict.clear()
            for i, x in enumerate(smatch.get_amr_match(predicted, gold, **{name: True})):
                total[i] += x
        count["other counts"] += (n_predicted, n_gold) != (our["predicted"], our["gold"])
        count["equal"] += matched == our["matched"]
        count["ours above"] += matched < our["matched"]
        count["ours below"] += matched > our["matched"]
        if matched > our["matched"] or (n_predicted, n_gold) != (our["predicted"], our["gold"]):
            print(f"smatch {matched} of {n_predicted}, {n_gold}; ours {our}\n  {gold}\n  {predicted}")
    for name, metric in (("justattribute", "attributes"), ("justrelation", "relations"), ("justinstance", "concept")):
        our = [ours[metric][k] for k in ("matched", "predicted", "gold")]
        count["equal parts"] += our == parts[name]
        count["ours above in parts"] += our[0] > parts[name][0]
        count["ours below in parts"] += our[0] < parts[name][0] or our[1:] != parts[name][1:]
    print("smatch:", ", ".join(f"{v} {k}" for k, v in count.items()))
    return not (count["ours below"] or count["other counts"] or count["ours below in parts"])


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    key = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    began = time.time()
    if what not in ("penman", "smatch"):
        sys.exit(__doc__)
    ok = (compare_penman if what == "penman" else compare_smatch)(number, key)
    print(f"{time.time() - began:.1f} s, seed {key}")
    sys.exit(not ok)
