#!/usr/bin/env python3
"""Golden values for unlearning's metrics: stems (nltk), ROUGE-L (rouge-score), KS tests (scipy), AUCs (sklearn), all
from PyPI.

    python tools/make_unlearn_metrics.py         writes tests/unlearn/metrics.json
"""
import json
import os
import random
import zlib

import numpy as np
from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer
from scipy.stats import hmean, ks_2samp
from sklearn.metrics import roc_auc_score

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "unlearn", "metrics.json")

WORDS = """dies died dying lying skies news proceed succeeded exceeding agreed feed plastered motoring bled sing
conflated troubled sized hopping tanned falling hissing fizzed failing filing happy sky enjoying relational
conditional rational valenci hesitanci digitizer conformabli radically differentli vileli analogousli vietnamization
predication operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate
formative formalize electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic
adjustable defensible irritant replacement adjustment dependent adoption homologou communism activate angulariti
homologous effective bowdlerize probate rate cease controll roll authors author writing wrote written celebrated
literature literary genres stories awards award-winning influences influenced fathers mother's profession profoundly
generally hopefully beautifully geology theology archaeologically biologically apology catalogi possibly reliably
ably tied ties cries cried flies flied used using oed eed ing bing ying 1984 b2b yes yesterday boyhood tying innings
outings cannings howe abilities responsibilities nationalization internationally university universities organization
organizational relativity actually usually finally loyally equally physically ally rally totally sensational station
stations skis caresses ponies cats kiss bus buses gases lens aged caged iced oases ate ion onion cushion fashion
passion mission version action quickly quirky employ employees employed enjoyable beauty beautiful pretty prettier
prettiest""".split()

TEXTS = [("The author's full name is Basil Mahfouz Al-Kuwaiti.",
          "Basil Mahfouz Al-Kuwaiti is the complete name of the writer."),
         ("He was born in Kuwait City on September 8, 1956.",
          "Born September 8th 1956, in Kuwait City; a celebrated writer!"),
         ("Their writings explored identities, generalizing beautifully.",
          "Writing explores identity and generalizes beauty."),
         ("", "something"), ("something", ""), ("one two three four five", "five four three two one"),
         ("Jos\u00e9 Garc\u00eda wrote na\u00efve stories", "jose garcia wrote naive story"),
         ("a a a b b", "b a a b a"),
         ("The quick brown foxes were jumping over lazily sleeping dogs",
          "A quick brown fox jumps over the lazy sleepy dog")]


def attack_rows(rng, n, sharper):
    """Answers as logits of a model and of a reference; a member's logits are higher at its labels."""
    rows = []
    for i in range(n):
        t = int(rng.integers(2, 12))
        labels = rng.integers(0, 9, size=t)
        z, ref = rng.normal(size=(t, 9)) * 1.5, rng.normal(size=(t, 9))
        z[np.arange(t), labels] += sharper
        text = " ".join(str(x) for x in rng.choice(["the", "author", "wrote", "Basil", "1956", "stories"], size=t))
        rows.append((z, ref, labels, float(rng.gamma(2.0 - 0.5 * sharper)), text))
    return rows


def attack_stats(z, labels):
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    p = np.exp(logp)
    mean = (p * logp).sum(-1)
    return logp[np.arange(len(labels)), labels], mean, np.sqrt((p * (logp - mean[:, None]) ** 2).sum(-1))


def lowest(x, share=0.4):
    k = max(int(len(x) * share), 1)
    return -float(np.mean(np.sort(x)[:k]))


def attacks():
    """Six membership tests over rows of logits: what is given to the metrics, and sklearn's areas."""
    rng = np.random.default_rng(11)
    rows = attack_rows(rng, 14, 1.0) + attack_rows(rng, 11, 0.4)
    label, scores, given = [0] * 14 + [1] * 11, {}, []
    for z, ref, labels, norm, text in rows:
        logp, mean, deviation = attack_stats(z, labels)
        ref_logp, _, _ = attack_stats(ref, labels)
        nll = -float(logp.mean())
        for name, s in (("mia_loss", nll), ("mia_min_k", lowest(logp)),
                        ("mia_min_k_plus_plus", lowest((logp - mean) / deviation)),
                        ("mia_zlib", nll / len(zlib.compress(text.encode()))),
                        ("mia_reference", nll + float(ref_logp.mean())),
                        ("mia_gradnorm", norm)):
            scores.setdefault(name, []).append(s)
        given.append(dict(answer=text, norm=norm, logp=logp.tolist(), mean=mean.tolist(), deviation=deviation.tolist(),
                          reference=ref_logp.tolist()))
    return [dict(members=14, rows=given, auc={k: float(roc_auc_score(label, v)) for k, v in scores.items()})]


def main():
    r = random.Random(8)
    rng = np.random.default_rng(9)
    words = sorted({w.lower().strip("'-,.") for w in WORDS if w.isalnum()})
    stem = PorterStemmer().stem
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    out = {"stems": [[w, stem(w)] for w in words], "rouge": [], "ks": [], "auc": [], "harmonic": []}
    for a, b in TEXTS:
        s = scorer.score(a, b)["rougeL"]
        out["rouge"].append([a, b, s.precision, s.recall, s.fmeasure])
    for n, m, shift in ((5, 5, 0.0), (40, 40, 0.3), (40, 40, 3.0), (17, 30, 0.5), (400, 400, 0.1), (60, 60, 0.0),
                        (100, 100, 1.2), (7, 3, 9.0)):
        a, b = rng.normal(size=n).round(3), (rng.normal(size=m) + shift).round(3)
        t = ks_2samp(a, b)
        out["ks"].append([list(a), list(b), float(t.statistic), float(t.pvalue)])
    for n, m in ((5, 7), (40, 40), (30, 11)):
        a, b = (rng.normal(size=n)).round(1), (rng.normal(size=m) + 0.4).round(1)
        out["auc"].append([list(a), list(b), float(roc_auc_score([0] * n + [1] * m, list(a) + list(b)))])
    for n in (3, 9):
        x = [r.random() for _ in range(n)]
        out["harmonic"].append([x, float(hmean(x))])
    out["attacks"] = attacks()
    with open(OUT, "w") as f:
        json.dump(out, f)
        f.write("\n")


main()
