"""Byte-level BPE: training, encoding, decoding, Hugging Face tokenizer.json.

Text is cut into pieces by GPT-2's pattern; merges never cross a piece. Ids:
0 is the special token, then the 256 bytes, then one id per merge.
"""

import collections
import json

import regex

SPECIAL = "<|endoftext|>"
PATTERN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)


def byte_characters():
    """GPT-2's table: a printable character for each of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table


def replace_pair(symbols, pair, merged):
    """Returns the list with each `pair` of neighbours made one symbol."""
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            out.append(merged)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train_merges(text, count):
    """Returns `count` merges, most frequent pair first; ties by name."""
    table = byte_characters()
    pieces = collections.Counter(PATTERN.findall(text))
    words = [[table[b] for b in piece.encode()] for piece in pieces]
    uses = list(pieces.values())
    pair_uses = collections.Counter()
    pair_words = collections.defaultdict(set)

    def add(index, sign):
        for pair in zip(words[index], words[index][1:]):
            pair_uses[pair] += sign * uses[index]
            if sign > 0:
                pair_words[pair].add(index)

    for index in range(len(words)):
        add(index, +1)
    merges = []
    while len(merges) < count:
        most = max(pair_uses.values())
        best = min(pair for pair, n in pair_uses.items() if n == most)
        merges.append(best)
        for index in sorted(pair_words[best]):
            add(index, -1)
            words[index] = replace_pair(words[index], best, "".join(best))
            add(index, +1)
        del pair_uses[best], pair_words[best]
    return merges


class Tokenizer:
    """Encodes and decodes as Hugging Face's ByteLevel BPE does."""

    def __init__(self, merges, vocab=None):
        """`vocab` {token: id} is for files of others; None: ids as above."""
        self.merges = [tuple(pair) for pair in merges]
        self.byte_to_char = byte_characters()
        self.char_to_byte = {c: b for b, c in self.byte_to_char.items()}
        if vocab is None:
            tokens = [SPECIAL, *sorted(self.char_to_byte)]
            tokens += ["".join(pair) for pair in self.merges]
            vocab = {token: i for i, token in enumerate(tokens)}
        self.vocab = vocab
        self.tokens = {i: token for token, i in vocab.items()}
        self.special_id = vocab[SPECIAL]
        self.rank = {pair: i for i, pair in enumerate(self.merges)}
        self.cache = {}

    @staticmethod
    def load(path):
        with open(path, encoding="utf-8") as file:
            model = json.load(file)["model"]
        merges = [tuple(merge.split(" ")) for merge in model["merges"]]
        return Tokenizer(merges, model["vocab"])

    def encode_piece(self, piece):
        """Ids of one piece: the earliest merge that fits, until none does."""
        if piece in self.cache:
            return self.cache[piece]
        symbols = [self.byte_to_char[b] for b in piece.encode()]
        while len(symbols) > 1:
            pairs = list(zip(symbols, symbols[1:]))
            best = min(pairs, key=lambda p: self.rank.get(p, len(self.rank)))
            if best not in self.rank:
                break
            symbols = replace_pair(symbols, best, "".join(best))
        ids = [self.vocab[symbol] for symbol in symbols]
        self.cache[piece] = ids
        return ids

    def encode(self, text):
        """Ids of a text; the special token's own text gives its id."""
        ids = []
        for i, part in enumerate(text.split(SPECIAL)):
            if i > 0:
                ids.append(self.special_id)
            for piece in PATTERN.findall(part):
                ids.extend(self.encode_piece(piece))
        return ids

    def decode(self, ids):
        """Text of the ids; broken UTF-8 becomes U+FFFD."""
        data = bytearray()
        for token in (self.tokens[i] for i in ids):
            if token == SPECIAL:
                data += SPECIAL.encode()
            else:
                data += bytes(self.char_to_byte[c] for c in token)
        return data.decode("utf-8", errors="replace")

    def save(self, folder):
        """Writes tokenizer.json and tokenizer_config.json."""
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        }
        special = {
            "id": 0,
            "content": SPECIAL,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": self.vocab,
            "merges": [" ".join(pair) for pair in self.merges],
        }
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [special],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": model,
        }
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "bos_token": SPECIAL,
            "eos_token": SPECIAL,
            "add_bos_token": False,
            "add_eos_token": False,
            "clean_up_tokenization_spaces": False,
        }
        write_json(folder / "tokenizer.json", tokenizer)
        write_json(folder / "tokenizer_config.json", config)


def write_json(path, value):
    """Readable, and the same bytes for the same value."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")
