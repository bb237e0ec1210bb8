"""Word vectors: neighbors and analogies against brute force, and files against gensim's."""

import gzip
import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors import word_vectors
from support.vectors.word_vectors import FORMATS, AnalogyReport, WordVectors

quick = settings(max_examples=60, derandomize=True, database=None, deadline=None)


def random_vectors(n=40, dim=8, seed=0):
    matrix = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return WordVectors([f"w{i}" for i in range(n)], matrix)


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b / np.sqrt((a @ a) * (b @ b))


# ---------------------------------------------------------------------------------- the class
def test_words_and_rows_belong_together():
    vectors = WordVectors(("x", "é", "词"), [[1, 2], [3, 4], [5, 6]])
    assert (len(vectors), vectors.dim, vectors.words) == (3, 2, ["x", "é", "词"])
    assert vectors.matrix.dtype == np.float32
    assert "é" in vectors and "e" not in vectors
    assert vectors["词"].tolist() == [5, 6] and vectors.index("é") == 1
    assert repr(vectors) == "WordVectors(3 words, 2 numbers each)"


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a", "b"], np.zeros((3, 2)), "2 words need a matrix of as many rows"),
        (["a"], np.zeros(1), "1 words need a matrix"),
        ([], np.zeros((0, 2)), "0 words need a matrix"),
        (["a", "b", "a"], np.zeros((3, 2)), "'a' is given twice"),
        (["a", "b"], [[1, 2], [3, np.nan]], "the vector of 'b' holds a number not finite"),
        (["a", "b"], [[1, 2], [3e38, 3e38]], "the vector of 'b' holds .* too large"),
        (["a", "b"], [[-np.inf, 2], [3, 4]], "the vector of 'a' holds"),
        (["a"], [[1e39]], "the vector of 'a' holds"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_words_and_rows_that_disagree_are_refused(words, matrix, message):
    with pytest.raises(ValueError, match=message):
        WordVectors(words, matrix)


def test_an_unknown_word_is_a_key_error_with_near_spellings():
    vectors = WordVectors(["london", "paris", "berlin", "rome"], np.eye(4))
    for look_up in (
        lambda: vectors["londn"],
        lambda: vectors.similarity("paris", "londn"),
        lambda: vectors.most_similar("londn"),
        lambda: vectors.most_similar("paris", exclude=["londn"]),
        lambda: vectors.analogy("paris", "rome", "londn"),
    ):
        with pytest.raises(KeyError, match="no vector for 'londn'; nearest spellings: london"):
            look_up()
    with pytest.raises(KeyError) as error:
        vectors["qqqq"]
    assert "nearest" not in str(error.value)


# --------------------------------------------------------------------------------- neighbors
@given(n=st.integers(2, 30), dim=st.integers(1, 6), k=st.integers(1, 35), seed=st.integers(0, 9))
@quick
def test_neighbors_equal_brute_force(n, dim, k, seed):
    vectors = random_vectors(n, dim, seed)
    rng = np.random.default_rng(seed)
    word, out = (f"w{i}" for i in rng.integers(0, n, 2))
    expected = {w: cosine(vectors[word], vectors[w]) for w in vectors.words if w not in (word, out)}
    found = vectors.most_similar(word, k, exclude=(out, out))
    assert len(found) == min(k, len(expected)) == len(dict(found))
    best = sorted(expected.values(), reverse=True)[:k]
    np.testing.assert_allclose([value for _, value in found], best, atol=1e-5)
    np.testing.assert_allclose([expected[w] for w, _ in found], best, atol=1e-5)
    if found:
        assert vectors.similarity(word, found[0][0]) == pytest.approx(found[0][1], abs=1e-6)


def test_a_query_vector_need_not_have_length_one_and_keeps_all_words():
    vectors = random_vectors()
    found = vectors.most_similar(vectors["w3"] * 1000, k=2)
    assert found[0] == ("w3", pytest.approx(1, abs=1e-6))
    assert found[1][0] == vectors.most_similar("w3", k=1)[0][0]
    assert vectors.most_similar(-vectors["w3"], k=len(vectors))[-1][0] == "w3"


def test_neighbors_come_in_falling_order_with_python_numbers():
    found = random_vectors().most_similar("w0", k=39)
    values = [value for _, value in found]
    assert values == sorted(values, reverse=True)
    assert all(type(word) is str and type(value) is float for word, value in found)


def test_tied_neighbors_all_appear():
    vectors = WordVectors(list("abcdef"), [[1, 0], [0, 2], [0, 1], [3, 0], [0, 4], [-1, 0]])
    found = vectors.most_similar("a", k=5)
    assert found[0] == ("d", 1.0) and found[-1] == ("f", -1.0)
    assert {word for word, value in found if value == 0} == {"b", "c", "e"}
    assert vectors.most_similar("a", k=2)[1][1] == 0


def test_a_zero_vector_is_no_nearer_to_anything():
    vectors = WordVectors(["zero", "a", "b"], [[0, 0], [1, 0], [0, 1]])
    assert vectors.similarity("zero", "a") == vectors.similarity("zero", "zero") == 0
    assert [value for _, value in vectors.most_similar(np.zeros(2))] == [0, 0, 0]


def test_the_number_of_neighbors_is_limited_by_the_words_left():
    vectors = random_vectors(5)
    assert len(vectors.most_similar("w0")) == 4
    assert len(vectors.most_similar("w0", 99, exclude=["w0", "w1", "w1"])) == 3
    assert vectors.most_similar("w0", exclude=["w1", "w2", "w3", "w4"]) == []
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k must be at least 1, got {k}"):
            vectors.most_similar("w0", k)


@pytest.mark.parametrize("shape", [(7,), (1, 8), (8, 1), ()])
def test_a_query_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"the query must have shape \(8,\)"):
        random_vectors().most_similar(np.ones(shape))


def test_looking_does_not_change_the_vectors():
    vectors = random_vectors()
    before, query = vectors.matrix.copy(), np.ones(8, np.float32)
    vectors.most_similar("w0", exclude=["w1"])
    vectors.most_similar(query)
    vectors.analogy("w0", "w1", "w2")
    vectors.evaluate_analogies({"s": [("w0", "w1", "w2", "w3")]})
    np.testing.assert_array_equal(vectors.matrix, before)
    np.testing.assert_array_equal(query, np.ones(8))


# --------------------------------------------------------------------------------- analogies
def brute_analogy(vectors, a, b, c):
    """Return the best d by the definition: unit vectors, b - a + c, the three words left out."""
    unit = {w: vectors[w] / np.linalg.norm(vectors[w]) for w in vectors.words}
    target = unit[b] - unit[a] + unit[c]
    return max((w for w in unit if w not in (a, b, c)), key=lambda w: cosine(target, unit[w]))


def test_an_analogy_uses_unit_vectors_and_leaves_the_three_out():
    vectors = random_vectors(12, 3)
    scaled = WordVectors(vectors.words, vectors.matrix * np.logspace(-2, 2, 12)[:, None])
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b, c = (f"w{j}" for j in rng.choice(12, 3, replace=False))
        [(d, value)] = vectors.analogy(a, b, c)
        assert d == brute_analogy(vectors, a, b, c) == scaled.analogy(a, b, c)[0][0]
        assert abs(value) <= 1 + 1e-6
    rest = vectors.analogy("w0", "w1", "w2", k=99)
    assert {w for w, _ in rest} == set(vectors.words) - {"w0", "w1", "w2"}


def test_the_three_words_would_win_if_they_were_not_left_out():
    vectors = WordVectors(["man", "woman", "king", "queen"], [[1, 0], [1, 0.1], [0, 1], [-1, 1]])
    assert vectors.analogy("man", "woman", "king") == [("queen", pytest.approx(0.71, abs=0.01))]
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    assert vectors.most_similar(unit[1] - unit[0] + unit[2], 1)[0][0] == "king"


def questions(n, seed=0, words=12):
    rng = np.random.default_rng(seed)
    return [tuple(f"w{j}" for j in rng.choice(words, 4, replace=False)) for _ in range(n)]


@pytest.mark.parametrize("batch", [1, 7, 512])
def test_evaluation_answers_as_analogy_does(monkeypatch, batch):
    monkeypatch.setattr(word_vectors, "BATCH", batch)
    vectors = random_vectors(12, 3)
    asked = questions(100)
    answers = [brute_analogy(vectors, a, b, c) for a, b, c, _ in asked]
    right = sum(answer == d for answer, (*_, d) in zip(answers, asked, strict=True))
    assert 2 < right < 50
    all_right = [(*abc, d) for (*abc, _), d in zip(asked, answers, strict=True)]
    unknown = [("w0", "w1", "w2", "nowhere"), ("W0", "w1", "w2", "w2")]
    given_sections = {"chance": asked, "right": all_right, "known": unknown, "none": []}
    report = vectors.evaluate_analogies(given_sections)
    assert report.sections == {
        "chance": (right, 100, 100),
        "right": (100, 100, 100),
        "known": (0, 1, 2),
        "none": (0, 0, 0),
    }
    assert report.asked == 201
    assert report.accuracy == pytest.approx((right + 100) / 201)
    assert report.coverage == pytest.approx(201 / 202)


def test_nothing_asked_has_no_accuracy():
    report = AnalogyReport({"s": (0, 0, 5)})
    assert np.isnan(report.accuracy) and report.coverage == 0
    assert np.isnan(AnalogyReport({}).coverage)


def test_a_word_is_taken_as_written_before_its_lower_case():
    matrix = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 1, 1], [1, 1, 1]]
    vectors = WordVectors(["a", "b", "c", "d", "D"], matrix)
    report = vectors.evaluate_analogies(
        {"lower": [("A", "B", "C", "d")], "as written": [("A", "B", "C", "D")]}
    )
    assert report.sections == {"lower": (1, 1, 1), "as written": (0, 1, 1)}


# -------------------------------------------------------------------------------------- files
WORDS = [
    "the",
    "é",
    "词",
    "don't",
    "<unk>",
    "-0.5",
    "7",
    "a_b",
    "…",
    "Ω",
    "#",
    "x:y",
    "\u200b",
    "🙂",
]
# Numbers that a careless text format loses: tiny, huge, subnormal, and ones with nine digits.
NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 3.4028235e18, 1e-38, 1e-45, 16777217.0, 0.12345678]


def hard_vectors():
    rng = np.random.default_rng(0)
    matrix = rng.choice(np.array(NUMBERS, np.float32), (len(WORDS), 5))
    matrix[0, 0] = 0.1
    return WordVectors(WORDS, matrix)


def same(a, b):
    assert a.words == b.words
    assert a.matrix.dtype == b.matrix.dtype == np.float32
    np.testing.assert_array_equal(a.matrix, b.matrix)


numbers = st.floats(-(2.0**60), 2.0**60, width=32)  # the squares of these are finite in float32


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_what_is_written_is_read_back_bit_for_bit(tmp_path, format):
    path = tmp_path / "vectors"
    hard_vectors().save(path, format)
    same(WordVectors.load(path, format), hard_vectors())

    @given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4))
    @quick
    def round_trip(rows):
        vectors = WordVectors([f"w{i}" for i in range(len(rows))], np.array(rows, np.float32))
        vectors.save(path, format)
        same(WordVectors.load(path, format), vectors)

    round_trip()


def test_text_is_told_from_glove_text_by_its_heading(tmp_path):
    for format in ("glove", "word2vec"):
        hard_vectors().save(tmp_path / format, format)
        same(WordVectors.load(tmp_path / format), hard_vectors())
    first, *rest = (tmp_path / "word2vec").read_bytes().splitlines()
    assert first == b"14 5"
    assert rest == (tmp_path / "glove").read_bytes().splitlines()
    assert rest[0].startswith(b"the 0.100000001 ")


hard_words = st.text(st.sampled_from(" \n\r\t\0\x1f\x85\xa0\ufeff\ud800-a5é词🙂"), max_size=5)
some_words = st.lists(hard_words | st.text(max_size=3), min_size=1, max_size=5, unique=True)


@pytest.mark.parametrize("format", FORMATS)
def test_any_word_comes_back_or_is_refused_when_it_is_saved(tmp_path, format):
    @given(some_words)
    @settings(quick, max_examples=400)
    def round_trip(words):
        vectors = WordVectors(words, np.arange(2.0 * len(words)).reshape(-1, 2))
        try:
            vectors.save(tmp_path / "v", format)
        except ValueError as error:
            assert "cannot be written" in str(error)
            assert any(not word.isalpha() for word in words), "letters are never refused"
        else:
            same(WordVectors.load(tmp_path / "v", format), vectors)

    round_trip()


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=4))
@settings(quick, max_examples=300)
@pytest.mark.parametrize("format", ["glove", "word2vec"])
@pytest.mark.filterwarnings("ignore:.* came twice")
def test_what_is_loaded_from_text_can_be_saved(tmp_path_factory, format, words):
    path = tmp_path_factory.getbasetemp() / "any words"
    heading = b"%d 2\n" % (len(words) + 1) if format == "word2vec" else b""
    path.write_bytes(heading + b"".join(word + b" 1 2\n" for word in (b"the", *words)))
    try:
        vectors = WordVectors.load(path, format)
    except ValueError:
        return
    vectors.save(path, format)
    same(WordVectors.load(path, format), vectors)


def test_files_of_gensim_are_read_and_ours_by_gensim(tmp_path):
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors = hard_vectors()
    theirs = models.KeyedVectors(vectors.dim)
    theirs.add_vectors(vectors.words, vectors.matrix)
    theirs.save_word2vec_format(str(tmp_path / "theirs"))
    same(WordVectors.load(tmp_path / "theirs", "word2vec"), vectors)

    vectors.save(tmp_path / "ours", "word2vec")
    back = models.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"))
    same(WordVectors(back.index_to_key, back.vectors), vectors)


def test_glove_text_is_read_by_gensim(tmp_path):
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    hard_vectors().save(tmp_path / "glove.txt")
    back = models.KeyedVectors.load_word2vec_format(str(tmp_path / "glove.txt"), no_header=True)
    same(WordVectors(back.index_to_key, back.vectors), hard_vectors())


def test_gensim_answers_analogies_the_same(tmp_path):
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors = random_vectors(60, 4)
    theirs = models.KeyedVectors(vectors.dim)
    theirs.add_vectors(vectors.words, vectors.matrix)
    asked = questions(300, seed=1, words=60)
    asked = [(*q[:3], vectors.analogy(*q[:3])[0][0]) if i % 2 else q for i, q in enumerate(asked)]
    file = tmp_path / "q.txt"
    file.write_text(": all\n" + "".join(" ".join(q) + "\n" for q in asked))
    accuracy, _ = theirs.evaluate_word_analogies(str(file), case_insensitive=False)
    assert accuracy > 0.5
    assert vectors.evaluate_analogies({"all": asked}).accuracy == pytest.approx(accuracy)


def test_tokens_with_spaces_are_read_from_glove_text(tmp_path):
    file = tmp_path / "glove.txt"
    file.write_bytes(b", 0.5 -1\n. . . 1 2e-3\nat name@domain.com -0.25 4\n\xc2\xa0x 1 1\n")
    vectors = WordVectors.load(file)
    assert vectors.words == [",", ". . .", "at name@domain.com", "\u00a0x"]
    assert vectors.matrix.tolist() == [[0.5, -1], [1, np.float32(2e-3)], [-0.25, 4], [1, 1]]
    for format in ("glove", "word2vec"):
        vectors.save(file, format)
        same(WordVectors.load(file, format), vectors)


def test_windows_line_ends_and_spaces_at_the_end_are_read(tmp_path):
    file = tmp_path / "v.txt"
    file.write_bytes(b"2 2\r\na 1 2 \r\nb 3 4")
    assert WordVectors.load(file).matrix.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("heading", [b"", b"2 2\n"])
@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\r\n", b" \n\t\n"])
def test_blank_lines_at_the_end_are_no_vectors(tmp_path, heading, end):
    file = tmp_path / "v.txt"
    file.write_bytes(heading + b"a 1 2\nb 3 4\n" + end)
    assert WordVectors.load(file).matrix.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no vectors"),
        ("0 3\n", "holds no vectors"),
        ("a 1 2\nb 3\n", "line 2, b'b 3.*1 numbers instead of 2"),
        ("a 1 2\nb 3 4\nc 5 6 7\n", "line 3, b'c 5 6 7.*3 numbers instead of 2"),
        ("a 1 2\nb -3 4 -5\n", "line 2, .*3 numbers instead of 2"),
        ("a 1 2\n\nb 3 4\n", "line 2 has 0 numbers; lines may be blank only at the end"),
        ("a 1 2\nb 3 nan\n", "line 2, b'b 3 nan.*not finite"),
        ("a inf 2\n", "line 1, b'a inf 2.*not finite"),
        ("a 1 -Infinity\n", "line 1, .*not finite"),
        ("a 1 1e39\n", "line 1, .*not finite"),
        ("a 1 2\nb 3 four\n", "line 2, b'b 3 four.*four"),
        ("a 1 2\nb 3 0x4\n", "line 2, .*0x4"),
        ("a\t1\t2\n", "line 1"),
        ("word\n", "line 1, b'word.*0 numbers"),
        ("7\n8\n", "line 1, b'7.*0 numbers"),
        ("2 0\na\nb\n", "line 2, b'a.*0 numbers"),
        ("1 3\na 1 2\n", "line 2, b'a 1 2.*2 numbers instead of 3"),
        ("1 1\na 1 2\n", "line 2, b'a 1 2.*2 numbers instead of 1"),
        ("3 2\na 1 2\nb 3 4\n", "heading promises 3 vectors, the file holds 2"),
        ("1 2\na 1 2\nb 3 4\n", "heading promises 1 vectors, the file holds 2"),
        ("<html><head> <title>Not Found</title>\n", "line 1, b'<html"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_text_file_that_is_not_right_is_refused_with_its_line(tmp_path, content, message):
    file = tmp_path / "v.txt"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        WordVectors.load(file)


def test_a_named_format_is_insisted_on(tmp_path):
    file = tmp_path / "v.txt"
    file.write_text("2 2\na 1 2\nb 3 4\n")
    with pytest.raises(ValueError, match="line 2, b'a 1 2.*2 numbers instead of 1"):
        WordVectors.load(file, "glove")
    file.write_text("a 1 2\nb 3 4\n")
    with pytest.raises(ValueError, match="line 1: expected a heading 'words dimensions'"):
        WordVectors.load(file, "word2vec")
    for act in (WordVectors.load, random_vectors().save):
        with pytest.raises(ValueError, match="glove, word2vec, given 'w2v'"):
            act(file, "w2v")
    file.write_text("7 5\n8 6\n")
    assert WordVectors.load(file, "glove")["8"].tolist() == [6]


def test_files_that_are_no_text_are_refused(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(200, 10)).astype("<f4")
    rows = [f"w{i} ".encode() + row.tobytes() + b"\n" for i, row in enumerate(numbers)]
    (tmp_path / "v.bin").write_bytes(b"200 10\n" + b"".join(rows))  # word2vec's binary format
    random_vectors(200, 10).save(tmp_path / "v.txt")
    with gzip.open(tmp_path / "v.gz", "wb") as file:
        file.write((tmp_path / "v.txt").read_bytes())
    for name in ("v.bin", "v.gz"):
        with pytest.raises(ValueError, match=name):
            WordVectors.load(tmp_path / name)


def test_of_a_word_that_comes_again_the_first_is_kept_with_a_warning(tmp_path):
    file = tmp_path / "v"
    file.write_text("4 2\na 1 2\nb 3 4\na 5 6\nb 7 8\n")
    with pytest.warns(UserWarning, match=r"2 words came twice, first kept: \['a', 'b'\]") as caught:
        vectors = WordVectors.load(file)
    assert caught[0].filename == __file__
    assert vectors.words == ["a", "b"] and vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_a_clean_file_gives_no_warning(tmp_path):
    hard_vectors().save(tmp_path / "v")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "overflow encountered")
        WordVectors.load(tmp_path / "v")


def test_a_missing_file_of_vectors_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        WordVectors.load(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("format", "words", "reason"),
    [
        ("glove", ["ok", ""], "'' cannot be written: nothing,"),
        ("glove", ["ok", "a\n"], "a line end"),
        ("glove", ["ok", " a"], "a space before a number, at an end or in line 1"),
        ("glove", ["ok", "route 66"], "a space before a number"),
        ("glove", ["new york", "ok"], "'new york' cannot be written: .*or in line 1"),
        ("word2vec", ["ok", "\ud800"], "half a character"),
    ],
)
def test_a_word_that_would_not_come_back_is_refused(tmp_path, format, words, reason):
    with pytest.raises(ValueError, match=reason):
        WordVectors(words, np.eye(2)).save(tmp_path / "v", format)
    assert not list(tmp_path.iterdir())


def test_saving_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "v.txt"
    random_vectors().save(file)
    before = file.read_bytes()

    broken = WordVectors(["fine", "\ud800"], np.eye(2))  # half a character: fails in mid-write
    with pytest.raises(ValueError, match="cannot be written"):
        broken.save(file)
    monkeypatch.setattr(word_vectors, "_check_words", lambda words, format: None)
    for format in FORMATS:
        with pytest.raises(UnicodeEncodeError):
            broken.save(file, format)
        assert file.read_bytes() == before
        assert os.listdir(tmp_path) == ["v.txt"]

    def full(source, target):
        assert os.path.dirname(source) == str(tmp_path), "a rename is whole only within one disk"
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        random_vectors(seed=1).save(file)
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["v.txt"]


def test_saving_replaces_what_was_there(tmp_path):
    random_vectors(9).save(tmp_path / "v")
    random_vectors(2).save(str(tmp_path / "v"))
    same(WordVectors.load(str(tmp_path / "v")), random_vectors(2))
    assert os.listdir(tmp_path) == ["v"]
