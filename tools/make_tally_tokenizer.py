#!/usr/bin/env python3
"""make_tally_tokenizer.py ROWS.jsonl OUT - the tokenizer of the built-in small model, from rows of `snug problems`.

Byte-level BPE. Digits stand alone; a word is one token once it is frequent; a line of the prompts that is always the
same (what a role is told, a criterion, a piece of advice) is one token too, so that short sequences are left for the
problem. Any other text still works, by smaller pieces. Needs the `tokenizers` package; its result lies in models/tally.
"""
import collections, json, os, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB = 768  # of the model; every id has a text, so that no drawn id is without one
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
# digits; operators with their spaces; "Step " and ": " before a digit; words with the space before; the end of a line
PIECES = r"\p{N}| ?[+\-*/=] ?|(?:Step|:) (?=\p{N})| ?\p{L}+|[.:]?\n+| ?[^\s\p{L}\p{N}]+|\s"
TEMPLATE = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def fixed_lines(rows):
    """Lines of prompts and names of scores that many rows have: those without a story's words or numbers."""
    count = collections.Counter()
    for row in rows:
        for line in set(row["messages"][0]["content"].split("\n")):
            # a line that begins a problem names a person and numbers; those of the prompts recur whole
            if len(line.split()) > 4 and not any(c.isdigit() for c in line.replace("0.0", "").replace("1.0", "")):
                count[line] += 1
    lines = [line for line, n in count.most_common() if n > len(rows) // 100]
    names = [line[2:].split(":")[0] + ": " for line in lines if line.startswith("- ")]
    return sorted(set(lines), key=len, reverse=True) + sorted(set(names)) + [" \\boxed{"]


def texts(rows, fixed):
    for row in rows:
        for m in row["messages"]:
            text = m["content"]
            for line in fixed:
                text = text.replace(line, "\x00")
            yield from text.split("\x00")


def main():
    source, out = sys.argv[1:]
    rows = [json.loads(line) for line in open(source)]
    fixed = fixed_lines(rows)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PIECES), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(fixed), special_tokens=SPECIAL, min_frequency=20,
                                  show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    t.train_from_iterator(texts(rows, fixed), trainer)
    t.add_tokens([AddedToken(line, normalized=False, special=False) for line in fixed])
    used = t.get_vocab_size()
    t.add_special_tokens([f"<|unused{i}|>" for i in range(VOCAB - used)])
    os.makedirs(out, exist_ok=True)
    t.save(os.path.join(out, "tokenizer.json"))
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>",
                   "model_max_length": 1024, "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE}, f,
                   indent=1)
        f.write("\n")
    print(f"{out}: {used} of {t.get_vocab_size()} tokens used, {len(fixed)} of them whole lines")


main()
