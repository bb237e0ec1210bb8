"""Word vectors: neighbors and analogies against brute force, and files against gensim's."""

import gzip
import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors import word_vectors
from support.vectors.word_vectors import WordVectors

FORMATS = ("glove", "word2vec")

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


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a", "b"], np.zeros((3, 2)), "a matrix of 2 rows"),
        (["a"], np.zeros(1), "a matrix of 1 rows"),
        ([], np.zeros((0, 2)), "a matrix of 0 rows"),
        (["a", "b", "a"], np.zeros((3, 2)), "'a' is given twice"),
        (["a", "b"], [[1, 2], [3, np.nan]], "the vector of 'b' has an entry that is not finite"),
        (["a", "b"], [[1, 2], [3e38, 3e38]], "the vector of 'b' has .* too large"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
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


def test_a_zero_vector_is_no_nearer_to_anything():
    vectors = WordVectors(["zero", "a", "b"], [[0, 0], [1, 0], [0, 1]])
    assert vectors.similarity("zero", "a") == vectors.similarity("zero", "zero") == 0
    assert [value for _, value in vectors.most_similar(np.zeros(2))] == [0, 0, 0]


def test_the_number_of_neighbors_is_limited_by_the_words_left():
    vectors = random_vectors(5)
    assert len(vectors.most_similar("w0")) == 4
    assert len(vectors.most_similar("w0", 99, exclude=["w0", "w1", "w1"])) == 3
    assert vectors.most_similar("w0", exclude=["w1", "w2", "w3", "w4"]) == []


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


def test_a_word_is_taken_as_written_before_its_lower_case():
    matrix = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 1, 1], [1, 1, 1]]
    vectors = WordVectors(["a", "b", "c", "d", "D"], matrix)
    report = vectors.evaluate_analogies(
        {"lower": [("A", "B", "C", "d")], "as written": [("A", "B", "C", "D")]}
    )
    assert report.sections == {"lower": (1, 1, 1), "as written": (0, 1, 1)}


# -------------------------------------------------------------------------------------- files
WORDS = ["the", "é", "词", "don't", "<unk>", "-0.5", "7", "a_b", "…", "#", "x:y", "\u200b", "🙂"]
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

    @given(st.integers(1, 3).flatmap(lambda dim: st.lists(st.lists(numbers, min_size=dim,
                                     max_size=dim), min_size=1, max_size=4)))  # fmt: skip
    @quick
    def round_trip(rows):
        # With words that are numbers, a first line of one dimension could look like a heading.
        vectors = WordVectors([str(i) for i in range(len(rows))], np.array(rows, np.float32))
        vectors.save(path, format)
        same(WordVectors.load(path), vectors)

    round_trip()
    hard_vectors().save(path, format)
    same(WordVectors.load(path), hard_vectors())
    packed = tmp_path / "vectors.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    same(WordVectors.load(packed), hard_vectors())
    for end in (0, 5, 100, packed.stat().st_size - 1):
        packed.write_bytes(gzip.compress(path.read_bytes())[:end])
        with pytest.raises(ValueError, match=str(packed)):
            WordVectors.load(packed)


hard_words = st.text(st.sampled_from(" \n\r\t\0\x1f\x85\xa0\ufeff\ud800-a5é词🙂"), max_size=5)
some_words = st.lists(hard_words | st.text(max_size=3), min_size=1, max_size=5, unique=True)


@pytest.mark.parametrize("format", FORMATS)
def test_any_word_comes_back_or_is_refused_when_it_is_saved(tmp_path, format):
    @given(some_words)
    @settings(quick, max_examples=300)
    def round_trip(words):
        vectors = WordVectors(words, np.arange(2.0 * len(words)).reshape(-1, 2))
        try:
            vectors.save(tmp_path / "v", format)
        except ValueError:
            assert any(not word.isalpha() for word in words), "letters are never refused"
        else:
            same(WordVectors.load(tmp_path / "v"), vectors)

    round_trip()


def test_files_of_gensim_are_read_and_ours_by_gensim(tmp_path):
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors = hard_vectors()
    theirs = models.KeyedVectors(vectors.dim)
    theirs.add_vectors(vectors.words, vectors.matrix)
    theirs.save_word2vec_format(str(tmp_path / "theirs"))
    same(WordVectors.load(tmp_path / "theirs"), vectors)

    vectors.save(tmp_path / "ours", "word2vec")
    back = models.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"))
    same(WordVectors(back.index_to_key, back.vectors), vectors)


def test_tokens_with_spaces_are_read_from_glove_text(tmp_path):
    file = tmp_path / "glove.txt"
    file.write_bytes(b", 0.5 -1\n. . . 1 2e-3\nat name@domain.com -0.25 4\n\xc2\xa0x 1 1\n")
    vectors = WordVectors.load(file)
    assert vectors.words == [",", ". . .", "at name@domain.com", "\u00a0x"]
    assert vectors.matrix.tolist() == [[0.5, -1], [1, np.float32(2e-3)], [-0.25, 4], [1, 1]]
    for format in ("glove", "word2vec"):
        vectors.save(file, format)
        same(WordVectors.load(file), vectors)


@pytest.mark.parametrize("heading", ["", "2 2\n", "\ufeff", "\ufeff2 2\n"])
@pytest.mark.parametrize(
    "content", ["a 1 2\nb 3 4", "a 1 2 \r\nb 3 4\r\n", "a\t1\t2\nb\t3 4\n", "a  1 2\nb 3 4\n\n \n"]
)
def test_other_line_ends_and_separators_are_read(tmp_path, heading, content):
    file = tmp_path / "v.txt"
    file.write_bytes((heading + content).encode())
    vectors = WordVectors.load(file)
    assert vectors.words == ["a", "b"] and vectors.matrix.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no vectors"),
        ("0 3\n", "holds no vectors"),
        ("a 1 2\nb 3\n", "line 2, b'b 3.*expected 2 numbers, got 1"),
        ("a 1 2\nb 3 4\nc 5 6 7\n", "line 3, b'c 5 6 7.*expected 2 numbers, got 3"),
        ("a 1 2\nb -3 4 -5\n", "line 2, .*got 3"),
        ("a 1 2\n 3 4\n", "line 2, .*expected 2 numbers"),
        ("a 1 2\nb 3 nan\n", "line 2, b'b 3 nan.*not finite"),
        ("a 1 1e39\n", "line 1, .*not finite"),
        ("a 1 2\nb 3 four\n", "line 2, b'b 3 four.*four"),
        ("a,1,2\n", "line 1"),
        ("a;1;2\n", "line 1"),
        ("a, 1, 2\n", "line 1"),
        ("a 1,5 2\n", "line 1"),
        ("2 0\na\nb\n", "line 2, b'a"),
        ("1 3\na 1 2\n", "line 2, b'a 1 2.*expected 3 numbers, got 2"),
        ("3 2\na 1 2\nb 3 4\n", "heading promises 3 vectors, the file holds 2"),
        ("<html><head> <title>Not Found</title>\n", "line 1, b'<html"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_text_file_that_is_not_right_is_refused_with_its_line(tmp_path, content, message):
    file = tmp_path / "v.txt"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        WordVectors.load(file)


def test_a_binary_file_is_called_so(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(200, 10)).astype("<f4")
    rows = [f"w{i} ".encode() + row.tobytes() + b"\n" for i, row in enumerate(numbers)]
    (tmp_path / "v.bin").write_bytes(b"200 10\n" + b"".join(rows))
    with pytest.raises(ValueError, match="v.bin: line 2, .*binary files, such as word2vec's .bin"):
        WordVectors.load(tmp_path / "v.bin")


def test_of_a_word_that_comes_again_the_first_is_kept_with_a_warning(tmp_path):
    file = tmp_path / "v"
    file.write_text("3 2\na 1 2\nb 3 4\na 5 6\n")
    with pytest.warns(UserWarning, match="'a' comes again and is left out") as caught:
        vectors = WordVectors.load(file)
    assert caught[0].filename == __file__
    assert vectors.words == ["a", "b"] and vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_a_clean_file_gives_no_warning(tmp_path):
    hard_vectors().save(tmp_path / "v")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "overflow encountered")
        WordVectors.load(tmp_path / "v")


@pytest.mark.parametrize(
    "words", [["ok", ""], ["ok", "a\n"], ["ok", "route 66"], ["new york", "ok"]]
)
def test_a_word_that_would_not_come_back_is_refused(tmp_path, words):
    with pytest.raises(ValueError):
        WordVectors(words, np.eye(2)).save(tmp_path / "v")
    with pytest.raises(ValueError, match="the format glove or word2vec, got 'w2v'"):
        random_vectors().save(tmp_path / "v", "w2v")
    assert not list(tmp_path.iterdir())


def test_saving_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "v.txt"
    random_vectors().save(file)
    before = file.read_bytes()

    def full(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        random_vectors(seed=1).save(file)
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["v.txt"]
