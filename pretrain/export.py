"""A trained model as a folder that the Transformers library loads, in versions 4 and 5."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from pretrain import tokens
from support.models import pretrained

README = """# {kind} from {text}

Trained by `python -m pretrain` of *Pretraining by Hand* on {n_bytes:,} bytes of text: {layers}
layers, width {width}, {heads} heads, {context} tokens of context, {steps:,} steps of {batch}
windows. Validation loss {loss:.4f} nats a token.

```python
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained({folder!r})
tokenizer = AutoTokenizer.from_pretrained({folder!r})
```
"""


def export(
    model: nn.Module, tokenizer: Tokenizer, options: Namespace, points: dict, n_bytes: int
) -> None:
    """Write model, tokenizer, README and losses into the folder of the run.

    points has, for each step of a report, the mean losses "train" and "valid".
    """
    out, bert = options.out, options.model == "bert"
    if bert:
        names = ("pad", "unk", "cls", "sep", "mask")
        special = dict(zip(names, tokens.SPECIALS["bert"], strict=True))
        ids = {"pad_token_id": tokenizer.token_to_id("[PAD]")}
        around = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        pair = "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0"
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", pair, around)
    else:
        end = tokens.end_id(tokenizer, options.model)
        special = dict.fromkeys(("bos", "eos", "pad"), tokenizer.id_to_token(end))
        ids = {f"{name}_token_id": end for name in special}
    pretrained.save(model, out, **ids)
    tokenizer.save(str(out / "tokenizer.json"))
    about = {f"{name}_token": token for name, token in special.items()}
    # No segments: BERT has seen only the first one, and GPT-2 would take them for tokens.
    about |= {"model_input_names": ["input_ids", "attention_mask"]}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": options.context}
    _write(out / "tokenizer_config.json", about | {"clean_up_tokenization_spaces": False})
    _write(out / "run" / "curve.json", points)
    readme = README.format(
        **vars(options) | {"text": " ".join(options.text)},
        kind=options.model.upper(),
        auto="AutoModelForMaskedLM" if bert else "AutoModelForCausalLM",
        folder=out.as_posix(),
        n_bytes=n_bytes,
        loss=points[options.steps]["valid"],
    )
    (out / "README.md").write_text(readme, "utf-8", "replace")


def _write(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
