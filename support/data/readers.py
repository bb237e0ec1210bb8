"""Files of the reader's own: a text, or an error that says where it is not one."""

from __future__ import annotations


def text(data: bytes, name: str) -> str:
    """Return a text without a byte order mark, its lines ended by "\\n".

    Raises:
        ValueError: it is not UTF-8 or has a NUL byte (a sign of a file that is no text); the
            message says at which byte.
    """
    if (nul := data.find(b"\0")) >= 0:
        raise ValueError(f"{name} is not a text: NUL at byte {nul}")
    try:
        decoded = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        wrong = f"0x{data[error.start]:02x} at byte {error.start}"
        raise ValueError(f"{name} is not UTF-8: {wrong}; save it as UTF-8") from None
    return decoded.replace("\r\n", "\n").replace("\r", "\n")
