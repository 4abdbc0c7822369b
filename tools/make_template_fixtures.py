#!/usr/bin/env python3
"""make_template_fixtures.py - what the reference (transformers' chat template environment on jinja2) renders for the
templates under tests/data/templates, for a table of small expressions, and for a Qwen2.5 tokenizer folder.

    python tools/make_template_fixtures.py [TOKENIZER_FOLDER]

writes tests/data/templates/{chat,small,folder}.jsonl. A line holds "name", "file" or "template", "vars" (absent: those
of the first line), and "expected" or "error": true. The folder's own template is not copied: where its words would
show, the line holds the length and FNV-1a hash of the expected text instead.
"""
import copy
import json
import os
import sys

from transformers.utils import chat_template_utils

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "templates")
compile_template = chat_template_utils._cached_compile_jinja_template


def render(template, variables):
    try:
        return {"expected": compile_template(template).render(**copy.deepcopy(variables))}
    except Exception:  # every refusal counts, whatever its class
        return {"error": True}


def write(name, lines):
    with open(os.path.join(HERE, name), "w") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")


# ---- conversations ----

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": " Weather of a place, \"now\" or later. ",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Town & country"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "parts": {"type": "array", "items": {"type": ["string", "null"]}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "any": {}}, "required": ["lat"]},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Zeit in Köln",
                                          "parameters": {"type": "object"}}}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


HELLO = [turn("user", "Hello!")]
LONGER = [turn("system", " Speak like a sailor.\n"), turn("user", " Grüße, 世界 🌍 "), turn("assistant", "Ahoy!\n"),
          turn("user", "What's 1 < 2?")]
THOUGHT = [
    turn("user", "2 + 2?"),
    turn("assistant", "<think>\nEasy: 4.\n</think>\n\n4"),
    turn("user", "And 3 + 3?"),
    turn("assistant", "<think>six</think>6"),
]
TOOLS = [
    turn("system", "Use tools."),
    turn("user", "Weather in Köln and Bonn?"),
    turn("assistant", None, tool_calls=[call("weather", {"place": "Köln", "days": 2, "deep": [1, 2.5, None, True]},
                                             id="abc123def")]),
    turn("tool", "{\"sky\": \"grey\"}", tool_call_id="abc123def"),
    turn("tool", "rain", tool_call_id="abc123deg"),
    turn("assistant", "Grey, then rain."),
    turn("user", "Thanks \"friend\"\t\\o/"),
]
TWO_CALLS = [
    turn("user", "Both!"),
    turn("assistant", "Sure.", tool_calls=[call("clock", {}), call("weather", {"place": "Bonn"})]),
]
OUT_OF_TURN = [turn("user", "one"), turn("user", "two"), turn("assistant", "three")]
PARTS = [turn("system", [{"type": "text", "text": "Look."}]),
         turn("user", [{"type": "image"}, {"type": "text", "text": " What is it? "}])]
STRANGE_ROLE = [turn("user", "hi"), turn("critic", "bad")]

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS = {
    "hello": {"messages": HELLO, "add_generation_prompt": True},
    "longer": {"messages": LONGER, "add_generation_prompt": False},
    "thought": {"messages": THOUGHT, "add_generation_prompt": True},
    "tools": {"messages": TOOLS, "tools": [WEATHER, CLOCK], "add_generation_prompt": True},
    "two calls": {"messages": TWO_CALLS, "tools": [CLOCK], "add_generation_prompt": False},
    "out of turn": {"messages": OUT_OF_TURN, "add_generation_prompt": True},
    "parts": {"messages": PARTS},
    "strange role": {"messages": STRANGE_ROLE},
}
MORE = [
    ("headers.jinja", "date", {"messages": HELLO, "date_string": "26 Jul 2024"}),
    ("headers.jinja", "functions first", {"messages": TOOLS, "tools": [WEATHER], "functions_first": True,
                                          "builtin_tools": ["weather"]}),
    ("headers.jinja", "no question", {"messages": TOOLS[:1], "tools": [WEATHER], "functions_first": True}),
    ("instruct.jinja", "default", {"messages": HELLO, "default_system": "Be honest."}),
    ("thinking.jinja", "reasoning", {"messages": [turn("user", "q"),
                                                  turn("assistant", "a", reasoning_content=" because ")]}),
]


def chat():
    cases = [(f, name, v) for f in sorted(os.listdir(HERE)) if f.endswith(".jinja") for name,
             v in CONVERSATIONS.items()]
    for file, name, variables in cases + MORE:
        source = open(os.path.join(HERE, file), encoding="utf-8", newline="").read()
        variables = {**TOKENS, **variables}
        yield {"name": f"{file}: {name}", "file": file, "vars": variables, **render(source, variables)}


# ---- a tokenizer's own template ----

FOLDER_CASES = {**CONVERSATIONS, "tools, no system": {"messages": TWO_CALLS[:1], "tools": [WEATHER],
                                                      "add_generation_prompt": True}}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return f"{h:016x}"


def folder(path):
    template = json.load(open(os.path.join(path, "tokenizer_config.json")))["chat_template"]
    for name, variables in FOLDER_CASES.items():
        line = {"name": name, "vars": variables, **render(template, variables)}
        own_words = variables.get("tools") or variables["messages"][0]["role"] != "system"
        if own_words and "expected" in line:
            data = line.pop("expected").encode()
            line.update(bytes=len(data), fnv1a=fnv1a(data))
        yield line


# ---- small ones ----

SHARED = {
    "a": 1, "b": 2.5, "t": True, "f": False, "n": None, "big": 9007199254740993, "e": "", "el": [], "ed": {},
    "s": "héllo wörld", "w": "  \t pad\n ", "ml": "one\ntwo\r\n\nthree", "q": "it's \"q\" \\ \u00a0\u200b\u0007é🌍",
    "l": [3, 1, 2], "names": ["Bob", "alice", "Carl", "bob"], "nested": [[1, 2], [3], []],
    "d": {"x": 1, "y": [1, 2], "items": 7, "k é": "v"},
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "n": {"m": [5]}},
             {"role": "user", "content": None}],
}

# Expressions, separated by semicolons.
VALUES = r"""
a; b; t; f; n; e; s; l; d; undefined_name; el; ed; nested; big; [q]; q; [undefined_name]
1e16; 1e15; 123456789012345680.0; 0.0001; 0.00001; 1.5e300; 0.1 + 0.2; 100.0; 1/3; 1e22; 5e-324; -0.0; 1_000; 0x1f
0b11; 0o17
[1, 'a', "it's", 'q"', "both'\"", none, true, 1.0, {'k': (1,)}, (), (1, 2)]
'tab\t nl\n bs\\ q\' \x41 \u00e9 \101 \q'; ['tab\t nl\n']; 'a' 'b' "c"
{'a': 1, 'a': 2}; {1: 'i', none: 'n', true: 't'}; {'x': {'y': []}}; {}; dict(a=1, b='x'); dict([('k', 1)], z=2)
1 + 2 * 3; (1 + 2) * 3; 2 ** 3 ** 2; -2 ** 2; 7 // 2; -7 // 2; 7 // -2; -7 % 3; 7 % -3; 7 / 2; 2 ** -1; 7.5 // 2
-7.5 % 2; 1 + t; -t; +1.5
'ab' * 3; 3 * 'ab'; [1] * 2; [1] + [2, 3]; (1,) + (2,); 'a' + 'b'; 'a' ~ 1 ~ none ~ [1]; 1 ~ 2; 'x' ~ undefined_name
'' * 5; 'ab' * -1
1 < 2 < 3; 1 < 3 < 2; 1 == 1.0; 'a' < 'b'; [1, 2] < [1, 3]; (1, 'a') == (1, 'a'); [1] == (1,); 1 != 2; true == 1
n == none; undefined_name == undefined_name
1 in l; 'x' in d; 'll' in s; '' in s; 5 not in l; not 5 in l; 'a' in ('a', 'b'); 1 in undefined_name
'role' in msgs[0]
t and a; f and a; f or s; '' or none; not t; not f and t; t or f and f; not (t and f); 1 and 0 or 2
'y' if t else 'n'; 'y' if f; 'y' if f else 'm' if f else 'z'; ('y' if f) is undefined; (1 if t else 2) + 1
s[0]; s[-1]; s[1:4]; s[::-1]; s[::2]; s[-3:]; s[:-3]; s[5:2]; s[2:100]; s[99]; l[0]; l[-1]; l[::-1]; l[1:]; l[:1]
l[-2:]; l[5]; (1, 2, 3)[1:]; l[::-2]; s[8:2:-2]
d.x; d['x']; d.y[0]; d.nope; d['nope']; d['items']; msgs[0].role; msgs[1]['n'].m[0]; msgs[-1].content; msgs.0.role
d.y.1; d['k é']; n.x; n['x']; a.x
d.get('x'); d.get('z'); d.get('z', 5); d.keys(); d.values(); d.items(); d.items()|list; 'x' in d.keys(); d.copy()
"""
METHODS = r"""
w.strip(); w.lstrip(); w.rstrip(); 'xxaxx'.strip('x'); 'xyaxy'.lstrip('yx'); 'aé'.rstrip('é'); '\u00a0a\u2003'.strip()
[w.strip()]
s.split(); 'a,b,,c'.split(','); 'a,b,c'.split(',', 1); ' a  b c '.split(none, 1); 'a,b,c'.rsplit(',', 1)
' a b c '.rsplit(none, 1); ''.split(); ''.split(','); 'a<x>b'.split('<x>')[-1]; 'abc'.split('x')
s.replace('l', 'L'); s.replace('l', 'L', 1); 'aa'.replace('', '-'); 'aé'.replace('', '-', 2); 'abab'.replace('ab', '')
s.startswith('hé'); s.endswith('ld'); s.startswith(('x', 'h')); s.startswith('l', 2)
s.upper(); s.lower(); s.title(); s.capitalize(); "they're b-c".title(); 'straße'.upper(); 'ÀÉ'.lower(); 'ab'.isalpha()
'12'.isdigit(); ' '.isspace(); 'aB'.islower(); 'AB1'.isupper()
s.find('ö'); s.find('zz'); s.find('l', 4); s.rfind('l'); s.index('w'); s.count('l'); 'aaa'.count('aa')
', '.join(names); '-'.join('abc'); ml.splitlines(); ml.splitlines(true); 'a=b=c'.partition('=')
'a=b=c'.rpartition('='); 'a'.partition('=')
'abc'.removeprefix('a'); 'abc'.removesuffix('bc'); 'abc'.removeprefix('x'); l.count(1); l.index(2)
names.index('Carl')
'%s and %s' % ('a', 1); '%d%%' % 5; '%5.2f|%-5s|%05d' % (1.005, 'x', 42); '%s' % l; '%r' % 'a'; '%.2s' % 'abc'
'%e' % 12345.678; '%g' % 0.00001; '%s'|format(a)
"""
FILTERS = r"""
w|trim; 'xax'|trim('x'); n|trim; s|upper; s|lower; names|join(', '); names|join; l|join('-')
msgs|join(',', attribute='role'); 'abc'|join('.'); undefined_name|join('x')
s|length; l|count; d|length; undefined_name|length; s|title; "they're (b-c)"|title; s|capitalize; l|string; n|string
[1, 'a']|string
undefined_name|default('x'); n|default('x'); n|default('x', true); ''|d('e', true); undefined_name|default
f|default(5, boolean=true); d.nope|default({'a': 1})
s|replace('l', 'L'); 1.5|replace('.', ','); s|replace('l', 'L', 2); l|first; l|last; el|first; s|first; s|last
d|first; d|last; (el|last) is undefined
l|list; s|list; d|list; (1, 2)|list; l|reverse|list; s|reverse; d|reverse|list; range(3)|list; range(1, 10, 3)|list
range(3, 0, -1)|list; range(0)|list
'12'|int; ' 7 '|int; '12.9'|int; 'x'|int; 'x'|int(5); 'ff'|int(0, 16); 3.9|int; -3.9|int; t|int; n|int; '1_000'|int
'1.5'|float; 'x'|float; '1e3'|float; 3|float
-5|abs; -5.5|abs; 5.5|round; 4.5|round; 2.675|round(2); 1234.5|round(-2); 7|round; 1.21|round(1, 'ceil')
1.29|round(1, 'floor'); -1.5|round
l|sort; names|sort; names|sort(case_sensitive=true); names|sort(reverse=true)
msgs|sort(attribute='role')|map(attribute='role')|list; nested|sort
{'b': 1, 'A': 2}|dictsort; {'b': 1, 'A': 2}|dictsort(true); {'b': 1, 'A': 2}|dictsort(by='value')
{'b': 1, 'A': 2}|dictsort(reverse=true); d|dictsort
names|unique|list; names|unique(case_sensitive=true)|list; [1, 1.0, true, 2]|unique|list; l|sum
[[1], [2]]|sum(start=[]); l|min; l|max; names|max; el|min
names|map('upper')|list; msgs|map(attribute='content')|list; msgs|map(attribute='n.m.0', default='-')|list
names|map('replace', 'b', 'X')|join; l|map('string')|join('+'); nested|map('length')|list
undefined_name|map('upper')|list
l|select('odd')|list; l|reject('odd')|list; [0, 1, '', 'a', none]|select|list; l|select('gt', 1)|list
names|select('in', ['Bob'])|list; [1, 'a']|select('string')|list
msgs|selectattr('role', 'equalto', 'user')|list|length; msgs|selectattr('content')|map(attribute='role')|list
msgs|rejectattr('content', 'none')|list|length; msgs|selectattr('n', 'defined')|list|length
msgs|selectattr('role', '!=', 'user')|map(attribute='content')|list
d|items|list; undefined_name|items|list; ml|indent; ml|indent(2, true); ml|indent(2, blank=true); ml|indent('> ')
s|safe; '<a href="x">&\'</a>'|e
d|tojson; d|tojson(indent=2); l|tojson(indent=1); el|tojson(indent=2); q|tojson; q|tojson(ensure_ascii=true)
{'b': 1, 'a': [true, none, 1.5, 1e20]}|tojson(sort_keys=true); d|tojson(separators=(',', ':')); (1, 2)|tojson
{1: 2, none: 3, true: 4}|tojson; '</script>'|tojson
"""
TESTS = r"""
a is defined; undefined_name is defined; undefined_name is undefined; n is none; n is not none; s is string
d is mapping; l is mapping; l is sequence; d is sequence; a is sequence; s is iterable; a is iterable
undefined_name is iterable
a is number; b is number; t is number; a is integer; t is integer; b is float; t is boolean; a is boolean; t is true
f is false; a is true; 4 is even; 3 is odd; 9 is divisibleby 3; 9 is divisibleby(2)
a is equalto 1; a is eq(1); a is ne 2; a is gt 0; a is ge(1); a is lt 1; s is in(['x']); 'x' is in d; 'abc' is lower
'ABC' is upper; n is sameas none; a is not string; not a is string; a is defined and b is defined
raise_exception is defined; raise_exception is callable; namespace is defined; d.items is defined; d.append is defined
l.append is defined; strftime_now('%Y')|length; strftime_now('%Y-%m-%d')|length
"""
ERRORS = r"""
1 / 0; 1 // 0; 1 % 0; 'a' + 1; 1 + 'a'; [1] + (2,); undefined_name + 1; 1 + undefined_name; undefined_name.x
undefined_name['x']; undefined_name(); d.nope.x; n < 1; 'a' < 1; undefined_name < 1; 5 in 5; 1 in 'a'; -'a'
l.append(4); l.pop(); d.update({}); d.clear(); s.nope(); a(); d(); s.split(''); s.index('zz'); ', '.join([1])
l|last(1); 5|length; 5|list; n|join; 5|sort; [1, 'a']|sort; l|nosuchfilter; l is nosuchtest
undefined_name|tojson; range(3)|tojson; l|map|list; l|map('nosuch')|list; l|select('nosuch')|list
msgs|selectattr|list; {[1]: 2}; raise_exception('no'); range(1000000); s[n.x.y]; l['a':]; '%d' % 'a'; '%s %s' % 'a'
'%s' % (1, 2); undefined_name|int; undefined_name|abs
1 +; (1; [1; {1; 'abc; a b; a..b; a.; a|; +; ); 1 if; not; a is; a|trim(; f(a=1, 2); {'a' 1}; [1 2]; 1 = 1; x[; @
a ? b : c; `a`; 007
"""
BLOCKS = r"""
{% if a %}A{% elif b %}B{% else %}C{% endif %}
{% if f %}A{% elif t %}B{% else %}C{% endif %}{% if n %}x{% else %}y{% endif %}{% if undefined_name %}x{% endif %}
{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in names %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(x|lower) }} {% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }},{% endfor %}
{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{{ a }}
{% for x in el %}{{ x }}{% else %}none{% endfor %}{% for x in undefined_name %}{{ x }}{% else %}undef{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}
{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% continue %}{% else %}E{% endfor %}{% for x in l %}{% break %}{% else %}E{% endfor %}
{% for row in nested %}{% for x in row %}{{ loop.index }}{{ x }} {% else %}-{% endfor %}{{ loop.index }};{% endfor %}
{% for c in 'aé🌍' %}[{{ c }}]{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}
{% set x, y = 1, [2] %}{{ x }}{{ y }}{% set z = 1, 2 %}{{ z }}{% set (p, q) = 'ab' %}{{ p }}{{ q }}
{% set x %}<{{ a }}>{% set inner = 1 %}{% endset %}{{ x }}{{ x|length }}{{ inner }}{% set y | upper %}abc{% endset %}{{ y }}
{% set ns = namespace(c=0, l=[]) %}{% for i in l %}{% set ns.c = ns.c + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.c }}{{ ns.l }}{{ ns.zzz }}
{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}{{ ns is defined }}{% set ns.a, ns.b = 1, 2 %}{{ ns.a + ns.b }}
{% set ns = namespace(n=0) %}{% for i in range(9) if ns.n < 3 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}
{% macro f(x, y=2, z='q') %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, z=4) }}{{ f(x=5) }}{{ f() }}{{ f('a')|upper }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f(x, y=x) %}{{ x }}{{ y }}{{ top }}{% endmacro %}{% set top = 'T' %}{{ f(1) }}{% macro g() %}{{ f(2) }}{% endmacro %}{{ g() }}{{ f.name }}
{% macro f() %}{% set v = 1 %}{{ v }}{% endmacro %}{{ f() }}{{ v }}{{ f() is string }}
{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) f(7) %}{{ y }}{{ a }}{% endcall %}
{% macro f() %}<{{ caller() if caller is defined else '-' }}>{% endmacro %}{{ f() }}{% call f() %}in{% endcall %}
{% with x = 1, y = a %}{{ x }}{{ y }}{% set a = 9 %}{{ a }}{% endwith %}{{ x }}{{ a }}
{% filter upper %}abc{{ a }}{% endfilter %}{% filter trim|replace('b', 'X') %} abc {% endfilter %}
{% generation %}{{ a }}{% set zz = 1 %}{% endgeneration %}{{ zz }}
{% raw %}{{ a }}{% if %}{# c #}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  |
{# comment #}a{#- c -#} b {#- c #} c
{{ 'a }} b' }}{{ '{% x %}' }}{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b']}}
{{ undefined_name }}{{ msgs[0].nope }}|{% if t %}{{ l|nosuch if f else 'ok' }}{% endif %}
{% if f %}{{ l|nosuch }}{{ l is nosuch }}{% endif %}ok
{{ (l|map('string')) is string }}{% set g = l|map('string') %}{{ g|join(',') }}|{{ g|join(',') }}|{{ (l|select)|length if f }}
{% set g = l|reverse %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}{{ g|first is undefined }}
{{ a, b }}{{ () }}{{ (1,) }}{{ [1,] }}{{ {'a': 1,} }}{{ namespace(a=1).a }}
{%set x=1%}{%if x==1%}{{x}}{%endif%}{%for i in[1,2]%}{{i}}{%endfor%}
{% if not not t %}{{ not not 'x' }}{% endif %}{{ a if a is defined and a else 0 }}{{ 1 if not f else 2 }}
{% if 'a' in d or a == 1 and s is string %}yes{% endif %}{{ -a|abs }}{{ -1|abs }}{{ (-1)|abs }}{{ 2 * 3|string }}
""".strip("\n").split("\n")
SPACES = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \n  b\n  {% endif %}  \nc",
    "a {%- if t %} b {%- endif %} c",
    "a {% if t -%} b {% endif -%} c", "  {%+ if t %}x{%+ endif %}\n  y", "{% if t +%}\nx{% endif +%}\ny",
    "  {{ a }}  \n  {{- a -}}  \n  {{ a }}", "{{ a }}\n", "{{ a }}\n\n", "\n{{ a }}",
    "a\r\nb\rc\n{% if t %}\r\nx{% endif %}\r\n",
    "x  {# c #}  \ny", "  {# c #}\n  y", "  {#- c -#}\n  y", "x\n\t {#+ c +#}\ny",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n",
    "{% raw %}\n  {{ x }}\n  {% endraw %}\n y", "  {% raw -%}  {{ x }}  {%- endraw +%}\n y",
    "{{ a }}  {% if t %}x{% endif %}", "\u00a0{%- if t %}\u2003x{% endif -%}\u3000y",
    "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}", "text { { % % } } {a} {",
    "{% if t %}a\n{% else %}b{% endif %}{{ '\n' }}{% if t %}\n{% endif %}", "{{-'a'-}} {{+ 'b' }}",
]
BROKEN = [
    "{% if a %}", "{% for x in l %}", "{% endif %}", "{% if a %}{% endfor %}", "{{ a", "{% if a", "{# a",
    "{% raw %}a", "{% nosuch %}", "{% set %}", "{% set x %}",
    "{% for x l %}{% endfor %}", "{% for in l %}{% endfor %}", "{% break %}", "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f %}{% endmacro %}", "{% set a.b = 1 %}", "{% set 1 = 2 %}",
    "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in n %}{% endfor %}", "{% macro f(x) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(x) %}{% endmacro %}{{ f(y=2) }}", "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{% for loop in l %}{% endfor %}", "{% set none = 1 %}", "{% if %}{% endif %}", "{{ }}",
    "{% for x in l %}{{ loop.x.y }}{% endfor %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% call f %}{% endcall %}",
    "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
]


def expressions(text):
    return ["{{ " + e.strip(" ") + " }}" for line in text.strip("\n").split("\n") for e in line.split(";")]


def small():
    yield {"vars": SHARED}
    tables = [t for group in (VALUES, METHODS, FILTERS, TESTS, ERRORS) for t in expressions(group)]
    for t in tables + BLOCKS + SPACES + BROKEN:
        yield {"template": t, **render(t, SHARED)}


if __name__ == "__main__":
    write("chat.jsonl", chat())
    write("small.jsonl", small())
    if len(sys.argv) > 1:
        write("folder.jsonl", folder(sys.argv[1]))
