"""The notebooks run on a pretended GPU, and it stops what a GPU would stop."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from torch import nn

from tests.pretended_gpu import pretended_gpu
from tools.address import ROOT
from tools.format_notebooks import notebooks, read
from tools.run_notebooks import ThisPython

START = "from tests.pretended_gpu import pretended_gpu\n_gpu = pretended_gpu()\n_gpu.__enter__()"
QUICK = {"exercise_27_2.ipynb"}  # the others are exhaustive


def run(notebook, folder):
    """Run a notebook in smoke on the pretended GPU; fail with the cell and line that stop it."""
    notebook.cells.insert(0, new_code_cell(START))
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel_manager_class=ThisPython, timeout=600, resources=place)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    try:
        client.execute(env={**os.environ, "PYTHONPATH": paths, "PRETRAIN_PROFILE": "smoke"})
    except CellExecutionError as error:
        pytest.fail(re.sub(r"\x1b\[[\d;]*m", "", str(error)), pytrace=False)


def mark(path):
    marks = [] if path.name in QUICK else pytest.mark.exhaustive
    return pytest.param(path, marks=marks, id=f"{path.parent.name}/{path.stem}")


@pytest.mark.parametrize("path", [mark(path) for path in notebooks()])
def test_a_notebook_runs(path):
    run(read(path), path.parent)


def test_the_cell_and_the_line_that_fail_are_named(tmp_path):
    made = "import torch\nfrom support import profile\nx = torch.ones(3, device=profile.device())"
    caught = new_code_cell("x.numpy()", metadata={"tags": ["raises-exception"]})
    wrong = new_code_cell("y = x + 1\ny = y * torch.arange(3)")
    with pytest.raises(
        pytest.fail.Exception, match=r"In\[4\], line 2[^$]*same device, but not so in mul"
    ):
        run(new_notebook(cells=[new_code_cell(made), caught, wrong]), tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "x + torch.ones(3)",
        "host * x.sum()",
        "total = torch.zeros(()); total += x.sum()",
        "x.masked_fill(host > 0, 0)",
        "host[ids.cuda()]",
        "x[ids] = host",
        "torch.stack([x.sum(), torch.zeros(())])",
        "F.embedding(ids, model.weight)",
        "F.cross_entropy(model(x), ids)",
        "model(host)",
        "model.cpu()(x)",
        "model(x).sum().backward(); model.weight.grad + torch.zeros(3, 3)",
        "nn.LSTM(3, 5, device=x.device)(host)",
        "nn.utils.rnn.pack_padded_sequence(x[None], ids[-1:].cuda())",
        "torch.multinomial(x.exp(), 1, generator=torch.Generator())",
        "torch.rand(3, generator=torch.Generator('cuda'))",
        "x.numpy()",
        "np.mean([x.sum()])",
    ],
)
def test_two_devices_are_seen(code):
    with pretended_gpu():
        names = {"torch": torch, "np": np, "F": F, "nn": nn, "x": torch.randn(4, 3).cuda()}
        names |= {"host": torch.ones(4, 3), "ids": torch.tensor([0, 2, 1, 4])}
        names |= {"model": nn.Linear(3, 3).to("cuda")}
        with pytest.raises((RuntimeError, TypeError), match="the same device|CPU|generator|cuda:0"):
            exec(code, names)


def test_correct_code_runs():
    with pretended_gpu():
        x, host = torch.randn(4, 3, device="cuda"), torch.ones(4, 3)
        ids = torch.tensor([0, 2, 1, 0])
        assert x[1:].T.detach().device == nn.Parameter(x).device == torch.device("cuda", 0)
        host[:2] = x[:2]
        x[0] = host.copy_(2 * x + torch.tensor(1.0))[ids[1]]
        assert not host.is_cuda and not torch.tensor(list(x[0])).is_cuda
        copied = x.cpu()
        copied += 1
        assert not np.allclose(copied, x[ids].tolist()) and copied.to(x.device).is_cuda

        lstm, table = nn.LSTM(3, 5), nn.Embedding(4, 3, sparse=True)
        optimizer = torch.optim.AdamW(lstm.parameters())  # before the move, as PyTorch allows
        states = table.to("cuda")(ids.to(x.device))[:, None]
        packed = nn.utils.rnn.pack_padded_sequence(states, torch.tensor([4]))
        out, lengths = nn.utils.rnn.pad_packed_sequence(lstm.to(x.device)(packed)[0])
        assert out.is_cuda and not lengths.is_cuda
        out.sum().backward()
        nn.utils.clip_grad_norm_(lstm.parameters(), 1.0)
        optimizer.step()
        torch.optim.SparseAdam(table.parameters()).step()
        assert (states[:, 0].detach().to_sparse_csr() @ host.T.to("cuda")[:3]).is_cuda
        assert not any(weight.is_cuda for weight in lstm.cpu().state_dict().values())
        generator = torch.Generator(x.device).manual_seed(0)
        assert (torch.rand(3, generator=generator, device=x.device) + x).is_cuda
