#!/usr/bin/env python3
"""make_amr_tokenizer.py OUT BLOCKS... - the tokenizer of recipes/amr-demo.yaml, from files of `snug amr draw`.

Byte-level BPE of 768 ids, as models/tally has. A word, with the space before it, is one token, and the same one in a
sentence and behind a graph's slash; so are roles, parentheses, and the lines of the prompt that are always the same.
Any other text still works, by smaller pieces. Needs the `tokenizers` package; its result lies in recipes/amr-demo.
"""
import json, os, re, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB = 768
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
FIXED = ["Write the meaning of the sentence as an AMR graph in PENMAN notation.\nSentence:", "\nGraph:\n"]
# roles with their space, parentheses, quotes, words with the space before (concepts with underscores and senses),
# digits
PIECES = r" :\p{L}+\p{N}?|\(|\)| /| ?\p{L}[\p{L}_]*(?:-\p{N}\p{N})?|\p{N}| ?[^\s\p{L}\p{N}()]|\s"
TEMPLATE = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def texts(paths):
    for path in paths:
        for block in open(path, encoding="utf-8").read().split("\n\n"):
            head, _, graph = block.partition("\n")
            yield " " + head[len("#::snt "):]
            yield re.sub(r"\s*\n\s*", " ", graph)


def main():
    out, *paths = sys.argv[1:]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PIECES), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(FIXED), special_tokens=SPECIAL, min_frequency=2,
                                  show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    t.train_from_iterator(texts(paths), trainer)
    t.add_tokens([AddedToken(line, normalized=False, special=False) for line in FIXED])
    used = t.get_vocab_size()
    t.add_special_tokens([f"<|unused{i}|>" for i in range(VOCAB - used)])
    os.makedirs(out, exist_ok=True)
    t.save(os.path.join(out, "tokenizer.json"), pretty=False)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>",
                   "model_max_length": 1024, "clean_up_tokenization_spaces": False,
                   "chat_template": TEMPLATE}, f, indent=1)
        f.write("\n")
    print(f"{out}: {used} of {t.get_vocab_size()} tokens used")


main()
