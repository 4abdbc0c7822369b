#!/usr/bin/env python3
"""Makes the small tokenizers of tests/data/tok_*: trained on generated text by the Hugging Face `tokenizers`
library, in the styles of well-known models, each with the ids and texts that library gives (expected.jsonl).

usage: make_tokenizer_fixtures.py [FOLDER]     (default: tests/data beside this file's folder)
The version of the library is recorded in the first line of every expected.jsonl."""
import json
import os
import random
import sys

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

NOUNS = "river bridge lantern garden engine window letter harbour pepper cloud mirror basket".split()
VERBS = "carries follows paints repairs counts remembers borrows measures".split()
WORDS = ("the a every some old quick silent seventh under over between because however it's they're "
         "12 345 2024").split()
OTHER = ["naïve café über", "привет мир", "数据 模型", "こんにちは", "मॉडल", "שלום", "x = f(y) + 1;",
         "if (n < 10) {\n    return n;\n}\n"]


def training_text():
    draw = random.Random(7)
    for i in range(1500):
        words = [draw.choice(list_) for list_ in (WORDS, NOUNS, VERBS, WORDS, NOUNS)]
        end = draw.choice([".", "!", "?", ";\n", "\n\n"])
        yield " ".join(words).capitalize() + end + (draw.choice(OTHER) if i % 7 == 0 else "")


def train(vocab_size, pre, special, alphabet):
    t = Tokenizer(models.BPE(byte_fallback=False))
    t.pre_tokenizer = pre
    t.train_from_iterator(training_text(), trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False,
        min_frequency=2))
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


BYTES = ["<0x%02X>" % b for b in range(256)]
MARK = "\u2581"


def sentencepiece_model(size, **options):
    vocab, merges = train(size, pre_tokenizers.Metaspace(), ["<unk>", "<s>", "</s>"] + BYTES, [])
    return models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, **options)


def byte_model(size, pre, extra=(), **options):
    vocab, merges = train(size, pre, [], pre_tokenizers.ByteLevel.alphabet())
    for piece in extra:
        vocab[piece] = len(vocab)
    return models.BPE(vocab=vocab, merges=merges, **options)


def special(*texts):
    return [AddedToken(t, special=True, normalized=False) for t in texts]


def sentencepiece_decoder():
    return decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def llama2():
    """A space before the text, marks for spaces, no pre-tokenizer, bytes for unknown characters."""
    t = Tokenizer(sentencepiece_model(460))
    t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    t.decoder = sentencepiece_decoder()
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                     special_tokens=[("<s>", 1)])
    t.add_special_tokens(special("<unk>", "<s>", "</s>"))
    return t


def mistral():
    """The same by Metaspace, which marks the first word only; with an end token, and control tokens."""
    t = Tokenizer(sentencepiece_model(440))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = sentencepiece_decoder()
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B",
                                                     special_tokens=[("<s>", 1), ("</s>", 2)])
    t.add_special_tokens(special("<unk>", "<s>", "</s>", "[INST]", "[/INST]"))
    return t


CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def llama3():
    """Bytes, digits in threes, words that are pieces taken whole, a begin token from a template in a Sequence;
    and Qwen's NFC."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CL100K), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = Tokenizer(byte_model(420, pre, extra=["Ġlighthouse", "Ġxylophone", "qwerty", "987"], ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", begin)])])
    return t


def smollm2():
    """Single digits, then GPT-2's pattern over bytes."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t = Tokenizer(byte_model(420, pre))
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return t


def odd():
    """What the others leave out: normalizers, marks before every piece, unknown tokens, tokens that take space."""
    vocab, merges = train(240, pre_tokenizers.Metaspace(), ["<unk>"], [])
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(),
                                         normalizers.Replace(Regex(r"[\u2018\u2019]"), "'"),
                                         normalizers.Strip(left=False, right=True)])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[.,!?]"), "merged_with_previous"),
                                               pre_tokenizers.Digits(individual_digits=False),
                                               pre_tokenizers.Metaspace(prepend_scheme="always", split=True)])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                  AddedToken("<end>", rstrip=True, normalized=False),
                  AddedToken("alone", single_word=True, normalized=False), AddedToken("Big Word", normalized=True)])
    return t


STYLES = {"llama2": llama2, "mistral": mistral, "llama3": llama3, "smollm2": smollm2, "odd": odd}

TEXTS = [
    "", " ", "  ", "a", "The river follows the old bridge.", "  two spaces before", "behind  ",
    "Every lantern paints\nsome garden\n\n", "tabs\tand\r\nlines \n and spaces   ", "12 345 6789012",
    "it's They'RE I'll we'VE 'tis rock'n'roll", "lighthouse xylophone qwerty 987", " lighthouse xylophone",
    "naïve café über", "nai\u0308ve cafe\u0301 (decomposed)", "привет мир, как дела?", "数据模型很好", "こんにちは世界",
    "मॉडल और डेटा", "שלום עולם", "ไม่มีช่องว่าง", "👩‍👩‍👧 👍🏽 🇩🇪", "x = f(y) + 1; // comment",
    "if (n < 10) {\n    return n;\n}\n", "\u00a0\u3000\u2009odd\u200bspaces\u2028here",
    "a\u0000b\u0001c\u007f", "\ufeffmark first", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "=" * 40,
    "<s>inside</s> text", "[INST] do it [/INST] done", "<|begin_of_text|>hello<|eot_id|>",
    "<|im_start|>user\nhi<|im_end|>\n<tool>", "before <mask> after <end>   behind",
    "alone but not alonely, alone.", "the Big Word and a big word", "<|im_start|",
    "\u2581mark\u2581 in text \u2581", "ﬁne ½ Ⅳ ＡＢＣ ‘quoted’ İstanbul",
    "\U000323a0\U0001e4d0 \u180e new letters",
    "e\u0327\u0301 \u1e14 \u0344 \u212b \uac00\u11a8 \u1100\u1161\u11a8", "#@$%^&*()_+{}|:\"<>?",
    "a\u0301\u0323 e\u0345\u08d3\u0301 o\u0301\u1dfa\u0323 \u0c3c\u0323\u0301", "one  <mask>two",
]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data")
    for name, make in STYLES.items():
        out = os.path.join(folder, "tok_" + name)
        os.makedirs(out, exist_ok=True)
        t = make()
        t.save(os.path.join(out, "tokenizer.json"), pretty=False)
        with open(os.path.join(out, "expected.jsonl"), "w") as f:
            f.write(json.dumps({"made_with": "tokenizers " + tokenizers.__version__}) + "\n")
            for text in TEXTS:
                ids = t.encode(text, add_special_tokens=True).ids
                f.write(json.dumps({"text": text, "ids": t.encode(text, add_special_tokens=False).ids,
                                    "with_special": ids,
                                    "decoded": t.decode(ids, skip_special_tokens=False),
                                    "decoded_plain": t.decode(ids, skip_special_tokens=True)}) + "\n")


if __name__ == "__main__":
    main()
