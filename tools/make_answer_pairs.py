#!/usr/bin/env python3
"""make_answer_pairs.py - pairs of answers, and whether sympy holds them for the same: tests/reason/answer_pairs.jsonl.

    python3 tools/make_answer_pairs.py > tests/reason/answer_pairs.jsonl        (needs sympy)

A drawn expression is written in two of several ways (LaTeX as sympy prints it, our own plain spelling, a mixed
number, a decimal, expanded, factored, within a sentence's dress); in half of the pairs one of them is changed first.
Sympy decides.
"""
import json
import random

import sympy as sp

draw = random.Random(20)
x, y, n = sp.symbols("x y n")


def number():
    kind = draw.randrange(9)
    a, b = draw.randint(1, 60), draw.randint(2, 12)
    if kind == 0: return sp.Integer(draw.randint(-2000, 2000000))
    if kind == 1: return sp.Rational(draw.randint(-90, 90), b)
    if kind == 2: return sp.Rational(draw.randint(-9999, 9999), 10 ** draw.randint(1, 3))
    if kind == 3: return a * sp.sqrt(draw.randint(2, 40)) / b
    if kind == 4: return sp.Rational(a, b) * sp.pi
    if kind == 5: return sp.Integer(draw.randint(2, 9)) ** draw.randint(2, 12)
    if kind == 6: return a + draw.choice([-1, 1]) * sp.sqrt(draw.randint(2, 30))
    if kind == 7: return sp.binomial(draw.randint(5, 12), draw.randint(0, 5)) * draw.choice([1, sp.pi])
    return sp.Rational(1, a) + sp.sqrt(b)


def formula():
    a, b, c = (draw.choice([-1, 1]) * draw.randint(1, 9) for _ in range(3))
    kind = draw.randrange(6)
    if kind == 0: return a * x + b
    if kind == 1: return (x + a) * (x + b)
    if kind == 2: return (a * x + b * y) ** 2 + c
    if kind == 3: return sp.Rational(a, abs(b) + 1) * n * (n + 1)
    if kind == 4: return sp.sqrt(x + y + 20) * a + b * y
    return (a * x + b) / (x ** 2 + abs(c))


def plain(e):
    """Our own spelling: a/b, sqrt(), ^, pi, products by *."""
    if e.is_Integer: return str(e)
    if e.is_Rational: return f"{e.p}/{e.q}"
    if e is sp.pi: return draw.choice(["pi", "\\pi", "\u03c0"])
    if e.is_Symbol: return e.name
    if e.is_Add: return " + ".join(f"({plain(t)})" if t.is_Add else plain(t) for t in e.args).replace("+ -", "- ")
    if e.is_Mul: return "*".join(f"({plain(t)})" if t.is_Add or (t.is_Rational and not t.is_Integer) or t.is_negative
                                 else plain(t) for t in e.args)
    if e.is_Pow and e.exp == sp.Rational(1, 2): return draw.choice([f"sqrt({plain(e.base)})",
        f"\\sqrt{{{plain(e.base)}}}"])
    if e.is_Pow: return f"({plain(e.base)})^({plain(e.exp)})"
    raise ValueError(e)


def mixed(e):
    if not e.is_Rational or e.is_Integer or abs(e) < 1: return None
    whole, part = divmod(abs(e.p), e.q)
    text = draw.choice([f"{whole}\\frac{{{part}}}{{{e.q}}}", f"{whole} {part}/{e.q}",
                        f"{whole} \\frac{{{part}}}{{{e.q}}}"])
    return ("-" if e < 0 else "") + text


def decimal(e):
    if not e.is_Rational: return None
    q = e.q
    while q % 2 == 0: q //= 2
    while q % 5 == 0: q //= 5
    if q != 1: return None
    text = f"{float(e):,.6f}".rstrip("0").rstrip(".")
    return draw.choice([text, text.replace(",", ""), text.replace(",", "{,}"), text.replace(",", ",\\!")])


def latex(e):
    return draw.choice([sp.latex(e), sp.latex(e).replace("\\frac", "\\dfrac"), sp.latex(e, fold_short_frac=True)])


def write(e):
    ways = [latex(e), plain(e), mixed(e), decimal(e)]
    if e.free_symbols: ways += [sp.latex(sp.expand(e)), sp.latex(sp.factor(e)), plain(sp.expand(e))]
    text = draw.choice([w for w in ways if w])
    dress = draw.randrange(12)
    if dress == 0: return f"${text}$"
    if dress == 1: return f"\\({text}\\)."
    if dress == 2 and not e.free_symbols: return f"x = {text}"
    if dress == 3 and e.is_Rational: return f"{text}\\text{{ cm}}"
    if dress == 4 and e.is_Integer: return f"\\${text}"
    if dress == 5: return f"\\left({text}\\right)" if not e.is_Atom else text
    return text


def changed(e):
    if e.free_symbols:
        return draw.choice([e + 1, -e, e.subs(x, x + 1) + sp.Rational(1, 2), 2 * e, e + n / 7])
    return draw.choice([e + 1, -e, e * 10, e + sp.Rational(1, 1000), 2 * e, e - sp.Rational(1, 7)])


def several():
    """Two lists of two or three numbers, in brackets of their own."""
    items = [number() for _ in range(draw.randint(2, 3))]
    kind = draw.choice(["()", "set", "bare"])
    other = list(items)
    what = draw.randrange(4)
    if what == 0: other[0] = changed(other[0])
    if what == 1: other.reverse()
    if what == 2: other = other[:-1] + [other[-1]] * 2
    wrap = {"()": lambda t: f"({t})", "set": lambda t: f"\\{{{t}\\}}", "bare": lambda t: t}[kind]
    equal = [sp.simplify(a - b) == 0 for a, b in zip(items, other)]
    if kind == "()": same = len(items) == len(other) and all(equal)
    else: same = len(items) == len(other) and sorted(map(sp.srepr, map(sp.nsimplify, items))) == sorted(map(sp.srepr,
        map(sp.nsimplify, other)))
    spell = lambda e: draw.choice([sp.latex(e), plain(e)])
    return wrap(", ".join(map(spell, items))), wrap(", ".join(map(spell, other))), same


for i in range(400):
    if i % 10 == 9:
        a, b, same = several()
    else:
        e = number() if i % 3 else formula()
        f = changed(e) if draw.random() < 0.5 else e
        a, b, same = write(e), write(f), bool(sp.simplify(e - f) == 0)
    print(json.dumps({"a": a, "b": b, "same": same}))
