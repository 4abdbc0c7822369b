#!/usr/bin/env python3
"""train_bpe.py FILE.jsonl OUT [VOCAB] - a byte-level BPE tokenizer from text, as tokenizer.json, with the standard
library alone.

    python3 tools/train_bpe.py corpus/train.jsonl corpus/tokenizer 16384

Words are counted over SAMPLE_BYTES of text taken evenly from the file's documents, then the most frequent neighbours
are merged again and again (of equal ones the first in the order of their texts, so the result is the same in every
run). Pieces are cut as GPT-2 cuts them, but for numbers, of which every digit stands alone. One special token,
<|endoftext|>, is the first id.
"""
import collections
import heapq
import json
import os
import re
import sys

SAMPLE_BYTES = 24_000_000
END = "<|endoftext|>"
PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# the same for Python's re, which has no \p: only for counting
COUNTED = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_letters():
    """GPT-2's letter for every byte: printable ones stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letter = {b: chr(b) for b in plain}
    for b in range(256):
        letter.setdefault(b, chr(256 + len(letter) - len(plain)))
    return [letter[b] for b in range(256)]


def count_words(path):
    count = collections.Counter()
    share = max(1, os.path.getsize(path) // SAMPLE_BYTES)
    with open(path) as f:
        for i, line in enumerate(f):
            if i % share == 0:
                count.update(COUNTED.findall(json.loads(line)["text"]))
    return count


class Merger:
    """Words as lists of symbols, and how often each pair of neighbours stands in them."""

    def __init__(self, words):
        letters = byte_letters()
        self.words = [[[letters[b] for b in word.encode()], n] for word, n in words.items() if n > 1]
        self.pairs, self.where = collections.Counter(), collections.defaultdict(set)
        for at, (symbols, n) in enumerate(self.words):
            for pair in zip(symbols, symbols[1:]):
                self.pairs[pair] += n
                self.where[pair].add(at)
        self.heap = [(-n, pair) for pair, n in self.pairs.items()]
        heapq.heapify(self.heap)

    def best(self):
        """The most frequent pair; counts in the heap may be old, then the pair goes back with its present one."""
        while self.heap:
            n, pair = heapq.heappop(self.heap)
            if -n == self.pairs[pair]:
                return pair if n else None
            if self.pairs[pair]:
                heapq.heappush(self.heap, (-self.pairs[pair], pair))
        return None

    def merge(self, pair):
        whole, changed = pair[0] + pair[1], set()
        for at in self.where.pop(pair):
            symbols, n = self.words[at]
            for old in zip(symbols, symbols[1:]):
                self.pairs[old] -= n
            merged, i = [], 0
            while i < len(symbols):
                both = i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair
                merged.append(whole if both else symbols[i])
                i += 2 if both else 1
            self.words[at][0] = merged
            for new in zip(merged, merged[1:]):
                self.pairs[new] += n
                self.where[new].add(at)
                changed.add(new)
        for new in changed:
            heapq.heappush(self.heap, (-self.pairs[new], new))


def write(out, vocab, merges):
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": merges}}
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f, ensure_ascii=False)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END,
                   "clean_up_tokenization_spaces": False}, f)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, out, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 16384
    vocab, merges = {text: i for i, text in enumerate([END] + sorted(byte_letters()))}, []
    merger = Merger(count_words(source))
    while len(vocab) < size and (pair := merger.best()):
        merger.merge(pair)
        merges.append(" ".join(pair))
        vocab.setdefault("".join(pair), len(vocab))
    write(out, vocab, merges)
    print(f"{len(vocab):,} tokens, {len(merges):,} merges", file=sys.stderr)


main()
