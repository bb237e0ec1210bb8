# Two commands: `make book` and `make test`. `make` alone lists the rest.

VENV ?= .venv
REQUIREMENTS ?= requirements.txt
LOCKED ?=
ARGS ?=
PROFILE ?=
NB ?=
PLAIN ?= chapters/bpe.ipynb solutions/exercise_27_6.ipynb

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
CACHE := $(CURDIR)/.cache

# LOCKED=1 installs the releases of the lock files, checksums and all, in place of the newest.
# A set of its own, such as requirements-torchtext.txt, serves the readers' and the tests' needs.
ifeq ($(REQUIREMENTS),requirements.txt)
READ := requirements.txt
DEV := requirements.txt requirements-dev.txt
BENCH := $(DEV) requirements-bench.txt
else
READ := $(REQUIREMENTS)
DEV := $(REQUIREMENTS)
BENCH := $(REQUIREMENTS)
endif
ifneq ($(LOCKED),)
READ := $(READ:.txt=.lock)
DEV := $(DEV:.txt=.lock)
endif

# Everything that a tool would write to the home folder goes below .cache/ in the checkout.
export CUDA_CACHE_PATH := $(CACHE)/cuda
export HF_HOME := $(CACHE)/huggingface
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
export IPYTHONDIR := $(CACHE)/ipython
export JUPYTER_CONFIG_DIR := $(CACHE)/jupyter/config
export JUPYTER_DATA_DIR := $(CACHE)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CACHE)/jupyter/runtime
export JUPYTERLAB_SETTINGS_DIR := $(CACHE)/jupyter/lab/settings
export JUPYTERLAB_WORKSPACES_DIR := $(CACHE)/jupyter/lab/workspaces
export MPLCONFIGDIR := $(CACHE)/matplotlib
export TORCH_HOME := $(CACHE)/torch
export TORCHINDUCTOR_CACHE_DIR := $(CACHE)/torchinductor
export TRITON_CACHE_DIR := $(CACHE)/triton
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Threads that wait for each other give up the core soon: on a busy machine, where a waiting thread
# keeps the one it waits for from running, PyTorch is then many times as fast.
export GOMP_SPINCOUNT ?= 1000
ifndef PIP_CACHE_DIR
export PIP_NO_CACHE_DIR := 1
endif

# The data cache is the user's own and may lie below XDG_CACHE_HOME; these stages never use it.
book colab-test unit notebooks again pages parity: export XDG_CACHE_HOME := $(CACHE)/xdg

NBVAL := pytest -q --nbval --nbval-current-env --nbval-cell-timeout=60

.NOTPARALLEL:
.PHONY: help setup setup-dev setup-bench book colab colab-test test lint unit form notebooks again \
	pages test-torchtext parity run lab bench format lock clean

help: ## Say what each target does (this list)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: ## Make the virtual environment and install what a reader needs
	@tools/environment.sh "$(VENV)" $(READ)

setup-dev:
	@tools/environment.sh "$(VENV)" $(DEV)

setup-bench:
	@tools/environment.sh "$(VENV)" $(BENCH)
	@$(RUN) pip show --quiet d2l 2>/dev/null || $(RUN) pip install --quiet --no-deps d2l==1.0.3

# A failed build is removed: Sphinx would not repeat its warnings for pages that have not changed.
book: setup ## Build the book, warnings being errors, and say where the page is
	@echo "== $(STAGE)the book"
	@$(BIN)/jupyter-book build . -W -n --keep-going --quiet || { rm -rf _build; exit 1; }
	@echo "The book is built. Open: $(CURDIR)/_build/html/index.html"

colab: book ## The notebooks without MyST's markup, for Colab and download, in _build/colab/
	@echo "The plain notebooks are in $(CURDIR)/_build/colab"

# Their cells are those of the originals, which all run in stage 4: two are run here, where no
# support/ lies beside them, to see that nothing else is missing.
colab-test: setup-dev ## The plain notebooks say what the pages say, and run (after the book)
	@echo "== The plain notebooks"
	@$(RUN) pytest -q tests/test_plain_notebooks.py
	@PRETRAIN_PROFILE=smoke PYTHONPATH=$(CURDIR) $(RUN) $(NBVAL) $(addprefix _build/colab/,$(PLAIN))

test: STAGE := Stage 5 of 6: #
test: setup-dev lint unit form notebooks book colab-test pages ## Prove everything: all stages
	@echo "== All tests passed"

lint: setup-dev ## Stage 1: lint and format of the code and of the notebooks' files
	@echo "== Stage 1 of 6: lint and format"
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) tools.format_notebooks --check
	@$(RUN) tools.report

unit: setup-dev ## Stage 2: unit tests of support/ and of the repository
	@echo "== Stage 2 of 6: unit tests"
	@PRETRAIN_PROFILE=smoke $(RUN) pytest -q --numprocesses=2 --dist=loadfile tests \
		--ignore=tests/test_notebooks.py --ignore=tests/test_pages.py \
		--ignore=tests/test_plain_notebooks.py

form: setup-dev ## Stage 3: the form of the notebooks
	@echo "== Stage 3 of 6: form of the notebooks"
	@$(RUN) pytest -q tests/test_notebooks.py

notebooks: setup-dev ## Stage 4: run every notebook in smoke and compare its outputs (nbval)
	@echo "== Stage 4 of 6: every cell of every notebook, run and compared"
	@PRETRAIN_PROFILE=smoke $(RUN) $(NBVAL) $(wildcard chapters solutions)

# Two notebooks at a time on one thread each, so a notebook takes longer than its limit on its own.
again: setup-dev ## Every notebook again, in another order, on another number of threads
	@echo "== Every notebook again: backwards, on one thread"
	@PRETRAIN_PROFILE=smoke OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PRETRAIN_NOTEBOOK_SECONDS=60 \
		$(RUN) $(NBVAL) --numprocesses=2 --dist=loadfile \
		$(shell ls -r $(wildcard chapters/*.ipynb solutions/*.ipynb))

pages: setup-dev ## Stage 6: open every built page in a headless browser (stage 5 is the book)
	@echo "== Stage 6 of 6: the built pages in a browser"
	@$(RUN) pytest -q tests/test_pages.py

test-torchtext: export PYTHON ?= python3.12 python3.11 python3.10 python3
test-torchtext: ## Beside torchtext and its last PyTorch: the same results, every notebook again
	@$(MAKE) --no-print-directory VENV=.venv-torchtext REQUIREMENTS=requirements-torchtext.txt \
		parity again
	@echo "== All tests beside torchtext passed"

parity: setup-dev
	@echo "== Tokens, vocabularies and articles are those of torchtext"
	@PRETRAIN_PROFILE=smoke $(RUN) pytest -q tests/test_torchtext.py

run: setup ## Re-execute notebooks and save them clean: NB=chapters/x.ipynb PROFILE=laptop
	@$(if $(PROFILE),PRETRAIN_PROFILE=$(PROFILE)) $(RUN) tools.run_notebooks $(NB)

lab: setup ## Open the notebooks in JupyterLab
	@$(BIN)/jupyter lab chapters

bench: setup-bench ## Measure against d2l, gensim and tokenizers; print a table, write JSON
	@$(RUN) benchmarks.run

format: setup-dev ## Format code and notebooks; carry the repository's address and the map along
	@$(RUN) tools.format_notebooks
	@$(RUN) tools.course_map
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

lock: ## Renew the lock files (needs uv): ARGS=--upgrade takes the newest releases that fit
	@tools/lock.sh $(ARGS)

clean: ## Remove what was built and cached in the checkout; the environment stays
	rm -rf _build .cache .hypothesis *.egg-info
	find . -name .venv\* -prune -o -name __pycache__ -prune -exec rm -rf {} +
