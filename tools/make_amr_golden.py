#!/usr/bin/env python3
"""make_amr_golden.py - what the packages penman and smatch say about drawn graphs: tests/amr/*.jsonl.

    python3 tools/make_amr_golden.py tests/amr        (needs penman 1.3 and smatch 1.0.4)

A line of penman.jsonl is a text, and if penman accepts it the top, triples, metadata and printed tree. A line of
smatch.jsonl is a pair of graphs with smatch's counts: matches (the best of 60 starts; where the smaller graph has 6
nodes at most, of all mappings), and the same for the variants, whose triples are chosen here.
"""
import itertools
import json
import logging
import os
import random
import re
import sys

import amr
import smatch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import amr_lib
import compare_amr


def penman_line(text):
    made = compare_amr.theirs(text)
    line = {"text": text, "accepted": made is not None}
    if made:
        line.update({k: made[k] for k in ("top", "triples", "metadata", "graph")})
    return line


# ---- smatch ----

def triples(text):
    graph = amr.AMR.parse_AMR_line(text)
    graph.rename_node("x")
    return graph.get_triples()


def prefixed(of, prefix):
    instances, attributes, relations = of
    number = lambda node: prefix + node[1:]
    return ([(r, number(a), b) for r, a, b in instances], [(r, number(a), b) for r, a, b in attributes],
            [(r, number(a), number(b)) for r, a, b in relations])


def view(of, how):
    instances, attributes, relations = of
    if how == "unlabelled":
        alike = [(r if r == "TOP" else "any", a, b) for r, a, b in attributes]
        return instances, alike, [("any", a, b) for _, a, b in relations]
    if how == "no_sense":
        return [(r, a, re.sub(r"-[0-9]{2,}$", "", b)) for r, a, b in instances], attributes, relations
    if how == "attributes":
        return [(r, a, None) for r, a, _ in instances], attributes, []
    if how == "relations":
        return [(r, a, None) for r, a, _ in instances], [], relations
    if how == "reentrancy":
        into = [b for _, _, b in relations]
        kept = [t for t in relations if into.count(t[2]) > 1]
        ends = {x for _, a, b in kept for x in (a, b)}
        return [(r, a, b if a in ends else None) for r, a, b in instances], [], kept
    return of


def counted(of):
    return sum(1 for t in of[0] if t[2] is not None) + len(of[1]) + len(of[2])


def pool(predicted, gold):
    """smatch's tables of weights; a node whose concept does not count has a name of its own on either side."""
    sides = []
    for prefix, side in (("a", predicted), ("b", gold)):
        instances, attributes, relations = prefixed(side, prefix)
        sides.append(([(r, n, b if b is not None else f"\0{n}") for r, n, b in instances], attributes, relations))
    return smatch.compute_pool(*sides[0], *sides[1], "a", "b"), sides


def all_mappings(weights, rows, columns):
    """The best over every mapping of rows to different columns or to none."""
    best = 0
    for mapping in itertools.product(range(-1, columns), repeat=rows):
        used = [m for m in mapping if m >= 0]
        if len(set(used)) == len(used):
            smatch.match_triple_dict.clear()
            best = max(best, smatch.compute_match(list(mapping), weights))
    return best


def best_match(predicted, gold):
    (candidates, weights), sides = pool(predicted, gold)
    rows, columns = len(predicted[0]), len(gold[0])
    if rows > columns:
        (candidates, weights), sides = pool(gold, predicted)
        rows, columns = columns, rows
    if rows <= 6 and (columns + 1) ** rows <= 300000:
        return all_mappings(weights, rows, columns), True
    smatch.iteration_num = 60
    smatch.match_triple_dict.clear()
    return smatch.get_best_match(*sides[0], *sides[1], "a", "b")[1], False


def smatch_line(gold, predicted):
    g, p = triples(gold), triples(predicted)
    line = {"gold": gold, "predicted": predicted, "metrics": {}}
    for how in ("smatch", "unlabelled", "no_sense", "reentrancy", "attributes", "relations"):
        a, b = view(g, how), view(p, how)
        if how == "unlabelled" and any(len(set(x)) < len(x) for x in (a[1], a[2], b[1], b[2])):
            continue # smatch squares what stands twice
        matched, certain = best_match(b, a)
        line["metrics"][how] = [matched, counted(b), counted(a), certain]
    return line


def main():
    logging.disable(logging.CRITICAL)
    folder = sys.argv[1]
    rng = random.Random(20)
    texts = []
    while len(texts) < 400:
        text = compare_amr.draw_text(rng)
        if compare_amr.is_one_block(text) and len(text) < 500:
            texts.append(text)
    with open(os.path.join(folder, "penman.jsonl"), "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps(penman_line(text), ensure_ascii=False) + "\n")
    pairs = []
    for wanted, most in ((160, 6), (60, 14), (20, 30)):
        some = [p for p in compare_amr.draw_pairs(rng, 12 * wanted) if max(t.count("(") for t in p) <= most]
        pairs += some[:wanted]
    with open(os.path.join(folder, "smatch.jsonl"), "w", encoding="utf-8") as f:
        for gold, predicted in pairs:
            f.write(json.dumps(smatch_line(gold, predicted), ensure_ascii=False) + "\n")


main()
