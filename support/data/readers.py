"""Files of the reader's own: a text or a table, or an error that says where it is not one."""

from __future__ import annotations


def text(data: bytes, name: str) -> str:
    """Return a text without a byte order mark, its lines ended by "\\n".

    Raises: ValueError if it is not UTF-8 or holds a NUL byte (a sign of a file that is no text),
    with the place in bytes.
    """
    if (nul := data.find(b"\0")) >= 0:
        raise ValueError(f"{name} is not a text: NUL at byte {nul}")
    try:
        decoded = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        bad, place = data[error.start], error.start
        raise ValueError(
            f"{name} is not UTF-8: 0x{bad:02x} at byte {place}; save it as UTF-8"
        ) from None
    return decoded.replace("\r\n", "\n").replace("\r", "\n")


def questions(data: bytes, name: str, section: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return the questions "a b c d" under each heading ": section"; before any, under `section`.

    Raises: ValueError as `text`, and naming the line that is not four words.
    """
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    for number, line in enumerate(text(data, name).split("\n"), 1):
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            sections.setdefault(section, []).append(tuple(words))
        elif words:
            raise ValueError(f"{name}, line {number}: expected four words, found {line[:80]!r}")
    return sections
