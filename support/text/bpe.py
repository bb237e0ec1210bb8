"""Byte-level byte pair encoding, with the merges and ids of the `tokenizers` library.

Source: Gage 1994 (the compression scheme); Sennrich et al. 2016 (merges inside words);
Radford et al. 2019, section 2.2 (bytes as the alphabet, the pattern that splits text first).
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise

import regex

from support import checks

Pair = tuple[int, int]

# White space as Unicode has it, without the control characters on which the libraries differ.
_SPACE = r"\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def _code_points(ranges: str) -> str:
    r"""Return ranges of code points as a character class of `regex` has them.

    >>> _code_points("61D 890-8E2")
    '\\U0000061d\\U00000890-\\U000008e2'
    """
    return "".join(
        "-".join(f"\\U{int(end, 16):08x}" for end in span.split("-")) for span in ranges.split()
    )


# Letters and numbers that Unicode assigned after version 16, the one `tokenizers` 0.23 knows.
# Taking them out keeps ids the same whatever the version of `regex`.
_AFTER_UNICODE_16 = _code_points(
    "558 58B-58C 88F C5C CDC 208F 209D-209F A7CE-A7CF A7D2 A7D4 A7DD-A7F1 AB6C-AB6D "
    "107BB-107BF 10940-10959 10EC5-10EEE 11B0A 11DB0-11DF1 1246F-1247F 12550-12686 "
    "16EA0-16ED3 16FF2-16FF6 187F8-187FF 18CD6-18CDA 18D09-191D2 1B123-1B128 1B168 1D6A6 "
    "1DF1F-1DF24 1DF2B-1DFFF 1E6C0-1E6FF 2B73A-2B73F 2B81E 2CEA2-2CEAD 323B0-3FC3F"
)
_LETTER, _NUMBER = (rf"[\p{{{c}}}--[{_AFTER_UNICODE_16}]]" for c in "LN")
_PRE_TOKEN = regex.compile(
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?{_LETTER}+| ?{_NUMBER}+| ?[^\s{_LETTER}{_NUMBER}]+|\s+(?!\S)|\s+",
    regex.V1,
)
# The same with one class, "no white space", in place of three. It cuts at fewer places and is three
# times as fast; to cut each different stretch once more gives the same as to cut the whole text.
_BLANK = rf"\x0b\x0c\x85{_SPACE}"
_STRETCH = re.compile(rf" ?[^{_BLANK}]+|[{_BLANK}]+(?![^{_BLANK}])|[{_BLANK}]+")


def pre_tokenize(text: str) -> list[str]:
    """Return the pre-tokens of `text`, which joined give `text` again; merges stay inside them.

    Letters and numbers are those of Unicode 16, as in `tokenizers` 0.23.

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
        # A special token can be spelled like the new symbol, which then has its id.
        new = vocab.setdefault(symbols[a] + symbols[b], len(symbols))
        if new == len(symbols):
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

    A heap holds the pairs, so a piece of n bytes takes O(n log n) steps.
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


class PieceCache(dict[str, Sequence]):
    """What a function gives for pieces of text, computed at the first look-up of each.

    A long piece hardly ever comes again and is not kept. A full cache is emptied.
    """

    def __init__(self, compute: Callable[[str], Sequence], most: int = 1 << 17, longest: int = 64):
        self.compute, self.most, self.longest = compute, most, longest

    def __missing__(self, piece: str) -> Sequence:
        found = self.compute(piece)
        if len(piece) <= self.longest:
            if len(self) >= self.most:
                self.clear()
            self[piece] = found
        return found


class BPETokenizer:
    """Byte-level BPE tokenizer: any text to ids and back.

    Attributes: `vocab` maps each token to its id, bytes written with `byte_symbols`; `merges`
    holds pairs of tokens in rank order; `special_tokens` maps each special token to its id.
    """

    def __init__(
        self,
        vocab: dict[str, int],
        merges: Sequence[tuple[str, str]],
        special_tokens: Sequence[str] = (),
    ):
        """Build the tables from what `train` learned, or from a part of its merges.

        Raises: ValueError if a byte or a special token is not in the vocabulary.
        """
        _check_special_tokens(special_tokens)
        if missing := [token for token in (*_SYMBOLS, *special_tokens) if token not in vocab]:
            raise ValueError(f"bytes and special tokens without an id: {missing[:5]}")
        self.vocab, self.merges = vocab, list(merges)
        self.special_tokens = {token: vocab[token] for token in special_tokens}
        self._bytes = {
            i: bytes(_BYTES[c] for c in token) if _BYTES.keys() >= set(token) else _utf8(token)
            for token, i in vocab.items()
        }
        # Longest first, as the library does where one special token begins another.
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._ranks = {
            (vocab[a], vocab[b]): (rank, vocab[a + b]) for rank, (a, b) in enumerate(self.merges)
        }
        self._byte_ids = [vocab[symbol] for symbol in _SYMBOLS]
        self._cache = PieceCache(self._encode_stretch)

    @classmethod
    def train(
        cls, texts: str | Iterable[str], vocab_size: int, special_tokens: Sequence[str] = ()
    ) -> BPETokenizer:
        """Return a tokenizer learned from one text or several.

        Ids: special tokens, then the 256 bytes in the order of their symbols, then merges. There
        are fewer than `vocab_size` when no pair is left to merge. Special tokens get no treatment
        of their own in the training text.
        Raises: ValueError if `vocab_size` leaves no room for bytes and special tokens, if a special
        token is empty or there twice, or if `texts` holds something else than str.
        Source: Sennrich et al. 2016, algorithm 1; order of ids and ties as in `tokenizers`.
        """
        _check_special_tokens(special_tokens)
        symbols = list(dict.fromkeys((*special_tokens, *sorted(_SYMBOLS))))
        checks.integers(len(symbols), vocab_size=vocab_size)
        stretches: Counter[str] = Counter()
        for text in [texts] if isinstance(texts, str) else texts:
            checks.text(text=text)
            stretches.update(_STRETCH.findall(text))
        counts: Counter[str] = Counter()
        for stretch, n in stretches.items():
            for pre_token in pre_tokenize(stretch):
                counts[pre_token] += n
        byte_ids = [symbols.index(symbol) for symbol in _SYMBOLS]
        words = [[byte_ids[byte] for byte in _utf8(pre_token)] for pre_token in counts]
        vocab, merges = _learn(words, list(counts.values()), symbols, vocab_size)
        return cls(vocab, [(symbols[a], symbols[b]) for a, b in merges], special_tokens)

    @property
    def vocab_size(self) -> int:
        """Return the number of ids, special tokens included."""
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; special tokens in it are recognized, the longest first.

        A lone surrogate, which UTF-8 has no place for, is encoded in three bytes all the same:
        `decode(ids, errors="surrogatepass")` brings it back.
        """
        checks.text(text=text)
        parts = self._special.split(text) if self.special_tokens else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):
            if i % 2:  # every second part is a special token
                ids.append(self.vocab[part])
            else:
                ids.extend(chain(*map(self._cache.__getitem__, _STRETCH.findall(part))))
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes that `ids` (a list, array or 1-D tensor) stand for, exactly.

        Raises: ValueError if an id is outside 0..vocab_size-1.
        """
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        try:
            return b"".join(map(self._bytes.__getitem__, ids))
        except KeyError as error:
            raise ValueError(
                f"no token has the id {error.args[0]!r}; ids are 0..{self.vocab_size - 1}"
            ) from None
        except TypeError:  # no list, or a list of lists
            raise ValueError(f"ids must be one list of integers, given {ids!r:.80}") from None

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """Return the text of `ids`; bytes that are not UTF-8 are treated as `bytes.decode` says."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def _encode_stretch(self, stretch: str) -> tuple[int, ...]:
        """Return the ids of a stretch of text: one pre-token, or several one after the other."""
        parts = pre_tokenize(stretch)
        if len(parts) == 1:
            return tuple(_merge([self._byte_ids[byte] for byte in _utf8(stretch)], self._ranks))
        return tuple(chain.from_iterable(map(self._cache.__getitem__, parts)))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _check_special_tokens(tokens: Sequence[str]) -> None:
    """Raise ValueError for what cannot be a list of special tokens."""
    checks.strings(special_tokens=tokens)
    for token in tokens:
        if not token or re.search("[\ud800-\udfff]", token):
            raise ValueError(
                f"a special token must not be empty or have lone surrogates, given {token!r}"
            )
        if not token.isascii() and _BYTES.keys() >= set(token):
            raise ValueError(
                f"special token {token!r} could be the name of other bytes; use ASCII: <|end|>"
            )
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"special tokens must differ from each other; given twice: {twice}")
