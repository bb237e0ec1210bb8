"""What both tokenizers need: classes of characters written as ranges, and a memory of pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# White space as Unicode has it, without the control characters on which the libraries differ.
SPACE = r"\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def code_points(ranges: str) -> str:
    r"""Return ranges of code points as a character class of `regex` has them.

    >>> code_points("61D 890-8E2")
    '\\U0000061d\\U00000890-\\U000008e2'
    """
    return "".join(
        "-".join(f"\\U{int(end, 16):08x}" for end in span.split("-")) for span in ranges.split()
    )


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
