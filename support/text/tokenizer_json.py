"""The `tokenizer.json` of the `tokenizers` library, for byte-level BPE: write and read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SWITCHES = {
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "byte_fallback": False,
    "ignore_merges": False,
}
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "special": True}


def write(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], special_tokens: Mapping[str, int]
) -> str:
    """Return the JSON text from which `tokenizers` builds the tokenizer.

    Merges are written "a b", which every release reads; those before 0.20 know nothing else.
    """
    by_id = sorted(special_tokens.items(), key=lambda item: item[1])
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    switches = {"type": "BPE", **_SWITCHES, "unk_token": None, "fuse_unk": False}
    settings = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "normalized": False, **_FLAGS} for token, i in by_id
        ],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": False},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            **switches,
            "vocab": dict(vocab),
            "merges": [" ".join(merge) for merge in merges],
        },
    }
    return json.dumps(settings, ensure_ascii=False)


def read(text: str | bytes) -> tuple[dict[str, int], list[tuple[str, str]], list[str]]:
    """Return vocabulary, merges and special tokens; merges may be written "a b" or ["a", "b"].

    Raises: ValueError if `text` is not JSON, if it asks for something else than byte-level BPE with
    GPT-2's pattern, or if its vocabulary, merges and special tokens do not fit together.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:  # the second for brackets in brackets
        raise ValueError(f"not JSON, {error}; it begins {text[:60]!r}") from None
    if not isinstance(data, dict):
        raise ValueError(f"a tokenizer.json is a JSON object, not {type(data).__name__}")
    model = _object(data, "model")
    _check_settings(data, model)
    vocab = dict(_object(model, "vocab"))
    special_tokens = []
    added = data.get("added_tokens") or []
    if not isinstance(added, list):
        raise ValueError(f"added_tokens must be a list, not {type(added).__name__}")
    for token in added:
        name = _special_token(token)
        if vocab.setdefault(name, token["id"]) != token["id"]:
            raise ValueError(f"added token {token}: the vocabulary gives it the id {vocab[name]}")
        special_tokens.append(name)
    ids = list(vocab.values())
    if any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise ValueError(f"the ids of {len(ids)} tokens must be 0..{len(ids) - 1}, each once")
    if not isinstance(model.get("merges"), list):
        raise ValueError(f"model.merges must be a list, not {type(model.get('merges')).__name__}")
    return vocab, [_merge(merge, vocab) for merge in model["merges"]], special_tokens


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the JSON object under `name`, an empty one for null or nothing."""
    found = data.get(name)
    if not isinstance(found, dict | None):
        raise ValueError(f"{name} must be a JSON object, not {type(found).__name__}")
    return found or {}


def _check_settings(data: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting that would give other ids than byte-level BPE."""
    pre, post, decoder = (
        _object(data, name) for name in ("pre_tokenizer", "post_processor", "decoder")
    )
    allowed = {
        "model.type": (model.get("type", "BPE"), ("BPE",)),
        "pre_tokenizer.type": (pre.get("type"), ("ByteLevel",)),
        "pre_tokenizer.add_prefix_space": (pre.get("add_prefix_space", True), (False,)),
        "pre_tokenizer.use_regex": (pre.get("use_regex", True), (True,)),
        "post_processor.type": (post.get("type"), ("ByteLevel", None)),
        "decoder.type": (decoder.get("type"), ("ByteLevel", None)),
        **{name: (data.get(name), (None,)) for name in ("normalizer", "truncation", "padding")},
        **{f"model.{name}": (model.get(name), (None, False, "")) for name in _SWITCHES},
    }
    for name, (found, choices) in allowed.items():
        if found not in choices:
            raise ValueError(f"{name} is {found!r}; supported: {' or '.join(map(repr, choices))}")


def _special_token(token: Any) -> str:
    """Return the text of an added token, or raise ValueError if it is not a plain special one."""
    if not isinstance(token, dict) or "id" not in token or type(token.get("content")) is not str:
        raise ValueError(f"an added token needs an id and a content; got {token!r}")
    if any(token.get(name, value) is not value for name, value in _FLAGS.items()):
        raise ValueError(f"added token {token}: supported are only those with {_FLAGS}")
    return token["content"]


def _merge(merge: Any, vocab: Mapping[str, int]) -> tuple[str, str]:
    """Return a merge as a pair, or raise ValueError if a part or its result is no token."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
        raise ValueError(f'a merge must be "a b" or ["a", "b"]; got {merge!r}')
    left, right = pair
    unknown = [token for token in (left, right, left + right) if token not in vocab]
    if unknown:
        raise ValueError(f"merge {merge!r}: not in the vocabulary: {unknown}")
    return left, right
