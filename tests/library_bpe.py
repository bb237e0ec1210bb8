"""The `tokenizers` library's tokenizer with the merges and ids of ours, to hold ours against."""

import pytest


def library_twin(ours):
    """Return the library's tokenizer with the vocabulary, merges and special tokens of ours."""
    library = pytest.importorskip("tokenizers")
    merges = [tuple(merge) for merge in ours.merges]
    theirs = library.Tokenizer(library.models.BPE(ours.vocab, merges))
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = library.decoders.ByteLevel()
    theirs.add_special_tokens(sorted(ours.special_tokens, key=ours.special_tokens.get))
    return theirs
