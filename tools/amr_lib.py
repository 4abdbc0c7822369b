"""amr_lib.py - AMR graphs drawn at random, changed a little, written in many ways, and broken: for the scripts that
compare our readers and scores with the packages penman and smatch."""

CONCEPTS = ("want-01 go-02 see-01 boy girl dog house red big say-01 give-01 and contrast-01 person name city country "
            "possible-01 obligate-01 think-01 know-01 thing date-entity 1-800 multi-sentence have-rel-role-91 bi_kịch "
            "chỗ người đi_học ăn Đà_Nẵng yêu-01 nói_chuyện trẻ_em É_TAT amr-unknown say-01 go-02 boy").split()
ROLES = (":ARG0 :ARG1 :ARG2 :ARG3 :mod :domain :time :location :poss :manner :purpose :op1 :op2 :op3 :frequency :part "
         ":topic :agent :theme :consist-of :prep-out-of :ARG0 :ARG1 :ARG1").split()
ATTRIBUTES = (":polarity", ":quant", ":mode", ":value", ":day", ":op1", ":op2", ":wiki", ":name", ":li")
CONSTANTS = ("-", "1", "2.5", "+", "interrogative", "imperative", "2009", "-", '"Kim"', '"Hà"', '"Đà_Nẵng"', '"a(b)c"',
             '"x:y/z"', '"New York"', '""', '"1"', "09", "_x_")
LETTERS = "abcdeghilmnopstuwđôăư"


class Graph:
    """nodes: (variable, concept), the first is the top; edges: (role, from, to); attributes: (role, node, constant)."""

    def __init__(self, nodes, edges, attributes):
        self.nodes, self.edges, self.attributes = nodes, edges, attributes


def draw_graph(rng, size, blanks=True, concepts=CONCEPTS):
    """A connected graph: every node but the first hangs on an earlier one, some relations more, some attributes."""
    nodes = []
    for i in range(size):
        letter = rng.choice(LETTERS)
        used = {v for v, _ in nodes}
        variable, k = letter, 2
        while variable in used:
            variable, k = f"{letter}{k}", k + 1
        nodes.append((variable, rng.choice(concepts)))
    edges = [(rng.choice(ROLES), rng.randrange(max(0, i - 6), i), i) for i in range(1, size)]
    edges = [(r, b, a) if rng.random() < 0.15 else (r, a, b) for r, a, b in edges]
    for _ in range(rng.randrange(0, max(1, size // 4) + 1) if size > 2 else 0):
        edges.append((rng.choice(ROLES), rng.randrange(size), rng.randrange(size)))
    constants = [c for c in CONSTANTS if blanks or " " not in c]
    attributes = [(rng.choice(ATTRIBUTES), rng.randrange(size), rng.choice(constants))
                  for _ in range(rng.randrange(0, size // 3 + 2))]
    return Graph(nodes, sorted(set(edges), key=edges.index), sorted(set(attributes), key=attributes.index))


def changed(rng, g, times, concepts=CONCEPTS):
    """What a parser might have made of it: other concepts and roles, relations that are missing or lead elsewhere."""
    nodes, edges, attributes = list(g.nodes), list(g.edges), list(g.attributes)
    n = len(nodes)
    for _ in range(times):
        kind = rng.randrange(6)
        if kind == 0:
            i = rng.randrange(n)
            nodes[i] = (nodes[i][0], rng.choice(concepts))
        elif kind == 1 and edges:
            i = rng.randrange(len(edges))
            edges[i] = (rng.choice(ROLES),) + edges[i][1:]
        elif kind == 2 and edges:
            i = rng.randrange(len(edges))
            edges[i] = (edges[i][0], edges[i][1], rng.randrange(n))
        elif kind == 3 and len(edges) > 1:
            edges.pop(rng.randrange(len(edges)))
        elif kind == 4 and attributes:
            attributes.pop(rng.randrange(len(attributes)))
        else:
            edges.append((rng.choice(ROLES), rng.randrange(n), rng.randrange(n)))
    return Graph(nodes, sorted(set(edges), key=edges.index), sorted(set(attributes), key=attributes.index))


def write(rng, g, one_line=False, tidy=False):
    """PENMAN text. Relations that point away from the tree are written with -of; what cannot be reached is left out."""
    seen, used = set(), set()

    def blank():
        if one_line or tidy:
            return " "
        return rng.choice([" ", " ", "\n  ", "\n\t", "  ", "\r\n "])

    def node(i):
        seen.add(i)
        variable, concept = g.nodes[i]
        parts = [f"({variable} / {concept}" if tidy or rng.random() < 0.9 else f"({variable}/{concept}"]
        branches = [("a", k) for k, a in enumerate(g.attributes) if a[1] == i]
        branches += [("e", k) for k, e in enumerate(g.edges) if i in e[1:]]
        if not tidy:
            rng.shuffle(branches)
        for kind, k in branches:
            if kind == "a":
                parts.append(f"{g.attributes[k][0]} {g.attributes[k][2]}")
                continue
            if k in used:
                continue
            role, a, b = g.edges[k]
            other, inverse = (b, False) if a == i else (a, True)
            used.add(k)
            target = g.nodes[other][0] if other in seen else node(other)
            parts.append(f"{role}{'-of' if inverse else ''} {target}")
        return blank().join(parts) + ")"

    return node(0)


def odd(rng, depth=0):
    """What the grammar allows and no corpus has: empty nodes, no concept or target, one variable for several nodes."""
    if rng.random() < 0.08:
        return "()"
    text = "(" + rng.choice("abcđ")
    if rng.random() < 0.75:
        text += rng.choice([" / ", "/", " /"]) + rng.choice(["x", "y-01", '"a b"', "", "a", ""])
        text += rng.choice(["", "", "~1", "~e.2"])
    for _ in range(rng.randrange(0, 4)):
        text += " " + rng.choice([":r", ":ARG0-of", ":", ":instance", ":consist-of", ":mod", ":-of", ":r-of-of"])
        text += rng.choice(["", "", "~3"])
        kind = rng.random()
        if kind < 0.35 and depth < 5:
            text += " " + odd(rng, depth + 1)
        elif kind < 0.85:
            text += " " + rng.choice(["a", "b", "c", "đ", "-", "1", '"s"', '"a~b"', '"\\\\"', '"q\\"q"'])
            text += rng.choice(["", "", "~e.4"])
    return text + ")"


def broken(rng, text, times):
    """The text with some characters removed, doubled, replaced or inserted."""
    pool = "()/:~\"#\\ \t\n-of.0123456789abcđ~e.1,2é_\u3000"
    for _ in range(times):
        i = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:i] + text[i + rng.randrange(1, 4):]
        elif kind == 1:
            text = text[:i] + rng.choice(pool) + text[i:]
        elif kind == 2:
            text = text[:i] + rng.choice(pool) + text[i + 1:]
        else:
            k = rng.randrange(len(text) + 1)
            text = text[:i] + text[min(i, k):max(i, k)][:12] + text[i:]
    return text


def aligned(rng, text):
    """Alignments behind some words, comments and metadata in front."""
    out, quoted = [], False
    for word in text.split(" "):
        quoted ^= word.count('"') % 2 == 1
        plain = word.rstrip(")")
        whole = plain and plain[0] not in "(/" and "\n" not in word and '"' not in word
        if not quoted and whole and rng.random() < 0.3:
            mark = rng.choice(["~1", "~e.4", "~e.1,2", "~e3", "~12,13,14"])
            word = plain + mark + word[len(plain):]
        out.append(word)
    head = rng.choice(["", "", "# ::id 7 ::date 2020 ::snt Một câu\n", "#::snt đi học ::x\n# ::save-date now  \n",
                       "# a comment\n# ::a 1 ::a 2\n"])
    return head + " ".join(out)
