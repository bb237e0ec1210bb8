"""Byte-level byte pair encoding, with the merges and ids of the `tokenizers` library.

Source: Gage 1994 (the compression scheme); Sennrich et al. 2016 (merges inside words);
Radford et al. 2019, section 2.2 (bytes as the alphabet, the pattern that splits text first).
"""

import heapq
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from numbers import Integral
from pathlib import Path

import regex

from support.data.files import whole_file
from support.text import tokenizer_json

# Letters and numbers that Unicode assigned after version 16, the one `tokenizers` 0.23 knows.
# Taking them out keeps ids the same whatever the version of `regex`.
_AFTER_UNICODE_16 = "".join(
    "-".join(f"\\U{int(end, 16):08x}" for end in span.split("-"))
    for span in (
        "558 58B-58C 88F C5C CDC 208F 209D-209F A7CE-A7CF A7D2 A7D4 A7DD-A7F1 AB6C-AB6D "
        "107BB-107BF 10940-10959 10EC5-10EEE 11B0A 11DB0-11DF1 1246F-1247F 12550-12686 "
        "16EA0-16ED3 16FF2-16FF6 187F8-187FF 18CD6-18CDA 18D09-191D2 1B123-1B128 1B168 1D6A6 "
        "1DF1F-1DF24 1DF2B-1DFFF 1E6C0-1E6FF 2B73A-2B73F 2B81E 2CEA2-2CEAD 323B0-3FC3F"
    ).split()
)
_LETTER, _NUMBER = (rf"[\p{{{c}}}--[{_AFTER_UNICODE_16}]]" for c in "LN")
_PRE_TOKEN = regex.compile(
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?{_LETTER}+| ?{_NUMBER}+| ?[^\s{_LETTER}{_NUMBER}]+|\s+(?!\S)|\s+",
    regex.V1,
)
# The same with one class, "no white space", in place of three. It cuts at fewer places and is three
# times as fast. White space is spelled out: for `re` it has four control characters too many.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_PIECE = re.compile(rf" ?[^{_SPACE}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+")


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte 0..255.

    Printable Latin-1 stands for itself; the other 68 bytes get U+0100, U+0101, ... in turn.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def pre_tokenize(text: str) -> list[str]:
    """Return the pre-tokens of `text`, which joined give `text` again.

    Letters and numbers are those of Unicode 16, as in `tokenizers` 0.23.
    """
    return _PRE_TOKEN.findall(text)


def coarse_pieces(text: str) -> list[str]:
    """Return `text` cut at some of the places where `pre_tokenize` cuts it, in a third of the time.

    To split each different piece once gives the same pre-tokens as to split the whole text.
    """
    return _PIECE.findall(text)


def count_pre_tokens(texts: Iterable[str]) -> Counter[str]:
    """Return how often each pre-token occurs in `texts`.

    Raises: ValueError if one of them is not a str.
    """
    by_piece: Counter[str] = Counter()
    if not isinstance(texts, Iterable):
        raise ValueError(f"texts must hold str, given {texts!r}")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"texts must hold str, not {type(text).__name__}")
        by_piece.update(coarse_pieces(text))
    counts: Counter[str] = Counter()
    for piece, n in by_piece.items():
        for pre_token in pre_tokenize(piece):
            counts[pre_token] += n
    return counts


Pair = tuple[int, int]

_SYMBOLS = byte_symbols()
_BYTES = {symbol: byte for byte, symbol in enumerate(_SYMBOLS)}
_CACHE_ENTRIES, _CACHE_LENGTH = 1 << 17, 64  # pieces, and characters in the longest one kept


class _Cache(dict[str, tuple[int, ...]]):
    """Ids per piece of text, computed at the first look-up; emptied when full."""

    def __init__(self, ranks: dict[Pair, Pair], byte_ids: list[int]):
        self.ranks, self.byte_ids = ranks, byte_ids

    def __missing__(self, piece: str) -> tuple[int, ...]:
        parts = pre_tokenize(piece)
        if len(parts) == 1:
            ids = tuple(_merge([self.byte_ids[byte] for byte in _utf8(piece)], self.ranks))
        else:
            ids = tuple(chain.from_iterable(map(self.__getitem__, parts)))
        if len(piece) <= _CACHE_LENGTH:
            if len(self) >= _CACHE_ENTRIES:
                self.clear()
            self[piece] = ids
        return ids


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


def _require(condition: object, message: str) -> None:
    """Raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _checked_special_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the special tokens, or raise ValueError for what cannot be one."""
    _require(not isinstance(tokens, str), f"special_tokens must be a list of str, not {tokens!r}")
    tokens = tuple(tokens)
    for token in tokens:
        _require(
            isinstance(token, str) and token and not re.search("[\ud800-\udfff]", token),
            f"a special token must be a str, not empty, without lone surrogates; got {token!r}",
        )
        _require(
            token.isascii() or not _BYTES.keys() >= set(token),
            f"special token {token!r} could be the name of other bytes; use ASCII, as in <|end|>",
        )
    twice = [token for token, count in Counter(tokens).items() if count > 1]
    _require(not twice, f"special tokens must differ from each other; given twice: {twice}")
    return tokens


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
        """Build the tables from what `train` learned or `from_tokenizer_json` read and checked.

        Raises: ValueError if a byte or a special token is not in the vocabulary.
        """
        special_tokens = _checked_special_tokens(special_tokens)
        missing = [token for token in (*_SYMBOLS, *special_tokens) if token not in vocab]
        _require(not missing, f"bytes and special tokens without an id: {missing[:5]}")
        self.vocab, self.merges = vocab, list(merges)
        self.special_tokens = {token: vocab[token] for token in special_tokens}
        self._bytes = {
            i: bytes(_BYTES[c] for c in token) if _BYTES.keys() >= set(token) else _utf8(token)
            for token, i in vocab.items()
        }
        # Longest first, as the library does where one special token begins another.
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        ranks = {
            (vocab[a], vocab[b]): (rank, vocab[a + b]) for rank, (a, b) in enumerate(self.merges)
        }
        self._ids = _Cache(ranks, [vocab[symbol] for symbol in _SYMBOLS])

    @classmethod
    def train(
        cls, texts: str | Iterable[str], vocab_size: int, special_tokens: Sequence[str] = ()
    ) -> "BPETokenizer":
        """Return a tokenizer learned from one text or several.

        Ids: special tokens, then the 256 bytes in the order of their symbols, then merges. There
        are fewer than `vocab_size` when no pair is left to merge. Special tokens get no treatment
        of their own in the training text.
        Raises: ValueError if `vocab_size` leaves no room for bytes and special tokens, if a special
        token is empty or there twice, or if `texts` holds something else than str.
        Source: Sennrich et al. 2016, algorithm 1; order of ids and ties as in `tokenizers`.
        """
        special_tokens = _checked_special_tokens(special_tokens)
        symbols = list(dict.fromkeys((*special_tokens, *sorted(_SYMBOLS))))
        _require(
            isinstance(vocab_size, Integral) and vocab_size >= len(symbols),
            f"vocab_size is {vocab_size!r}; it must be an integer of at least {len(symbols)}, for "
            f"256 bytes and {len(special_tokens)} special tokens",
        )
        counts = count_pre_tokens([texts] if isinstance(texts, str) else texts)
        byte_ids = [symbols.index(symbol) for symbol in _SYMBOLS]
        words = [[byte_ids[b] for b in _utf8(pre_token)] for pre_token in counts]
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
        _require(isinstance(text, str), f"text must be a str, not {type(text).__name__}")
        parts = self._special.split(text) if self.special_tokens else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):  # every second part is a special token
            pieces = [] if i % 2 else coarse_pieces(part)
            ids.extend([self.vocab[part]] if i % 2 else chain(*map(self._ids.__getitem__, pieces)))
        return ids

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text."""
        _require(not isinstance(texts, str), "texts must be a list of str, not one str")
        return [self.encode(text) for text in texts]

    def encode_bytes(self, data: bytes) -> list[int]:
        """Return ids for any bytes; those that are not UTF-8 get one id each."""
        ids: list[int] = []
        parts = re.split("([\udc80-\udcff])", data.decode("utf-8", "surrogateescape"))
        for i, part in enumerate(parts):
            ids.extend([self._ids.byte_ids[ord(part) - 0xDC00]] if i % 2 else self.encode(part))
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

    def to_tokenizer_json(self) -> str:
        """Return the `tokenizer.json` from which `tokenizers` builds the same tokenizer."""
        return tokenizer_json.write(self.vocab, self.merges, self.special_tokens)

    @classmethod
    def from_tokenizer_json(cls, source: str | Path) -> "BPETokenizer":
        """Return the tokenizer that a `tokenizer.json`, given as a path or as its text, describes.

        Raises: ValueError if it is not JSON or not byte-level BPE; see `tokenizer_json.read`.
        """
        if not (isinstance(source, Path) or os.path.isfile(source)):
            return cls(*tokenizer_json.read(source))
        try:
            return cls(*tokenizer_json.read(Path(source).read_bytes()))
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write `to_tokenizer_json` to a file, which is never seen half written."""
        with whole_file(path) as file:
            file.write(self.to_tokenizer_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> "BPETokenizer":
        """Return the tokenizer in a file that `save` or the `tokenizers` library wrote.

        Raises: FileNotFoundError if there is none; ValueError as `from_tokenizer_json`.
        """
        return cls.from_tokenizer_json(Path(path))
