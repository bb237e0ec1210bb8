"""Byte-level byte pair encoding, with the merges and ids of the `tokenizers` library.

Source: Gage 1994 (the compression scheme); Sennrich et al. 2016 (merges inside words);
Radford et al. 2019, section 2.2 (bytes as the alphabet, the pattern that splits text first).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import regex

Pair = tuple[int, int]

_PRE_TOKEN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
CACHE_SIZE = 1 << 17  # pre-tokens


def pre_tokenize(text: str) -> list[str]:
    """Return the pre-tokens of `text`, which joined give `text` again; merges stay inside them.

    >>> pre_tokenize("It's low, lower.")
    ['It', "'s", ' low', ',', ' lower', '.']
    """
    return _PRE_TOKEN.findall(text)


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte 0..255.

    Printable Latin-1 stands for itself; the other 68 bytes get U+0100, U+0101, ... in turn.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_SYMBOLS = byte_symbols()
_BYTES = {symbol: byte for byte, symbol in enumerate(_SYMBOLS)}


class BPETokenizer:
    """Byte-level BPE tokenizer: any text to token ids and back.

    Attributes:
        vocab: each token to its id, bytes written with `byte_symbols`.
        merges: pairs of tokens in rank order.
    """

    def __init__(self, vocab: dict[str, int], merges: Sequence[tuple[str, str]]):
        """Build the tables from what `train` learned, or from its first merges."""
        self.vocab, self.merges = vocab, list(merges)
        self._bytes = {i: bytes(_BYTES[c] for c in token) for token, i in vocab.items()}
        self._ranks = {
            (vocab[a], vocab[b]): (rank, vocab[a + b]) for rank, (a, b) in enumerate(self.merges)
        }
        self._byte_ids = [vocab[symbol] for symbol in _SYMBOLS]
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def train(cls, texts: str | Iterable[str], vocab_size: int) -> BPETokenizer:
        """Return a tokenizer learned from one text or several.

        Ids: the 256 bytes in the order of their symbols, then merges. There are fewer than
        `vocab_size` when no pair is left to merge.
        Raises:
            ValueError: `vocab_size` leaves no room for the bytes.
        Source: Sennrich et al. 2016, algorithm 1; order of ids and ties as in `tokenizers`.
        """
        symbols = sorted(_SYMBOLS)
        if vocab_size < len(symbols):
            raise ValueError(f"expected a vocab_size of at least {len(symbols)}, got {vocab_size}")
        counts: Counter[str] = Counter()
        for text in [texts] if isinstance(texts, str) else texts:
            counts.update(pre_tokenize(text))
        byte_ids = [symbols.index(symbol) for symbol in _SYMBOLS]
        words = [[byte_ids[byte] for byte in _utf8(pre_token)] for pre_token in counts]
        vocab, merges = _learn(words, list(counts.values()), symbols, vocab_size)
        return cls(vocab, [(symbols[a], symbols[b]) for a, b in merges])

    @property
    def vocab_size(self) -> int:
        """Return the number of ids."""
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`.

        A lone surrogate, which UTF-8 cannot hold, is encoded in three bytes all the same:
        `decode(ids, errors="surrogatepass")` brings it back.
        """
        ids: list[int] = []
        for pre_token in pre_tokenize(text):
            found = self._cache.get(pre_token)
            ids += self._encode_pre_token(pre_token) if found is None else found
        return ids

    def _encode_pre_token(self, pre_token: str) -> list[int]:
        """Return the ids of a pre-token, and remember them: most come again."""
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        ids = _merge([self._byte_ids[byte] for byte in _utf8(pre_token)], self._ranks)
        self._cache[pre_token] = ids
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes that `ids` (a list, array or 1-D tensor) stand for, exactly."""
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        return b"".join(self._bytes[i] for i in ids)

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """Return the text of `ids`; bytes that are not UTF-8 are treated as `bytes.decode` says."""
        return self.decode_bytes(ids).decode("utf-8", errors)


def _learn(
    words: list[list[int]], counts: list[int], symbols: list[str], vocab_size: int
) -> tuple[dict[str, int], list[Pair]]:
    """Return the vocabulary and the merges learned; `words` and `symbols` change in place.

    Pairs are counted once. A merge then visits only the words that hold its pair and corrects the
    counts of the neighbors; the heap keeps with each pair the words in which it newly appeared, and
    a count that has changed since is found out at the top. Of equal counts the lowest ids go first.
    """
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    pair_counts: defaultdict[Pair, int] = defaultdict(int)
    where: defaultdict[Pair, list[int]] = defaultdict(list)
    for w, (word, count) in enumerate(zip(words, counts, strict=True)):
        for pair in pairwise(word):
            pair_counts[pair] += count
            where[pair].append(w)
    heap = [(-pair_counts[pair], pair, at) for pair, at in where.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(vocab) < vocab_size:
        count, (a, b), at = heap[0]
        if count != -pair_counts[a, b]:
            heapq.heapreplace(heap, (-pair_counts[a, b], (a, b), at))
            continue
        if count == 0:
            break
        heapq.heappop(heap)
        new = vocab[symbols[a] + symbols[b]] = len(symbols)
        symbols.append(symbols[a] + symbols[b])
        merges.append((a, b))
        where = defaultdict(list)
        for w in dict.fromkeys(at):
            word, count, i = words[w], counts[w], 0
            last, merged = len(word) - 1, []
            while i <= last:
                if word[i] != a or i == last or word[i + 1] != b:
                    merged.append(word[i])
                    i += 1
                    continue
                if merged:
                    left = merged[-1]
                    pair_counts[left, a] -= count
                    pair_counts[left, new] += count
                    where[left, new].append(w)
                merged.append(new)
                i += 2
                if i <= last:
                    right = word[i]
                    pair_counts[b, right] -= count
                    pair_counts[new, right] += count
                    where[new, right].append(w)
            words[w] = merged
        for pair, at in where.items():
            if pair_counts[pair] > 0:
                heapq.heappush(heap, (-pair_counts[pair], pair, at))
    return vocab, merges


def _merge(ids: list[int], ranks: dict[Pair, Pair]) -> list[int]:
    """Return `ids` after the merges in rank order, leftmost first; `ranks` maps to (rank, id).

    A heap holds the pairs, so a pre-token of n bytes takes O(n log n) steps: text without spaces
    has pre-tokens of any length.
    """
    heap = [(*ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in ranks]
    if not heap:
        return ids
    heapq.heapify(heap)
    n = len(ids)
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    while heap:
        _, new, left = heapq.heappop(heap)
        right = after[left]
        # An entry is out of date once either of its two symbols has been merged.
        if right == n or ranks.get((ids[left], ids[right]), (0, -1))[1] != new:
            continue
        ids[left], ids[right] = new, -1
        after[left] = after[right]
        if after[left] < n:
            before[after[left]] = left
            if (found := ranks.get((new, ids[after[left]]))) is not None:
                heapq.heappush(heap, (*found, left))
        if left > 0 and (found := ranks.get((ids[before[left]], new))) is not None:
            heapq.heappush(heap, (*found, before[left]))
    return [i for i in ids if i >= 0]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
