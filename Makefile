# Two commands: `make book` and `make test`. `make` alone lists the rest.

VENV ?= .venv
REQUIREMENTS ?= requirements.txt
LOCKED ?=
ARGS ?=
PROFILE ?=
NB ?=
TEXT ?=
OUT ?=
PLAIN ?= chapters/bpe.ipynb solutions/exercise_27_6.ipynb

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
# uv installs where it is there, else pip; UV= declines it. See tools/environment.sh.
export UV ?= uv
PIP := $(if $(shell command -v "$(UV)" 2>/dev/null),"$(UV)" pip install --python $(BIN)/python,$(RUN) pip install)
CACHE := $(CURDIR)/.cache

# LOCKED=1 installs the releases of the lock files, checksums and all, in place of the newest.
# A set of its own, such as requirements-torchtext.txt, serves every need.
ifeq ($(REQUIREMENTS),requirements.txt)
BUILD := requirements-book.txt
READ := $(BUILD) requirements.txt
DEV := $(READ) requirements-dev.txt
BENCH := $(DEV) requirements-bench.txt
else
BUILD := $(REQUIREMENTS)
READ := $(REQUIREMENTS)
DEV := $(REQUIREMENTS)
BENCH := $(REQUIREMENTS)
endif
ifneq ($(LOCKED),)
BUILD := $(BUILD:.txt=.lock)
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
export UV_CACHE_DIR ?= $(CACHE)/uv
ifndef PIP_CACHE_DIR
export PIP_NO_CACHE_DIR := 1
endif

# The data cache is the user's own and may lie below XDG_CACHE_HOME; these stages never use it.
book book-zh colab-test unit form exhaustive notebooks again pages parity: export XDG_CACHE_HOME := $(CACHE)/xdg

# Two processes at a time, and in each one thread: on two cores that is sooner through.
TWO := --numprocesses=2 --dist=loadfile
PYTEST := PRETRAIN_PROFILE=smoke OMP_NUM_THREADS=1 $(RUN) pytest -q $(TWO)
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=600

.NOTPARALLEL:
.PHONY: help setup-book setup setup-dev setup-bench book book-zh translate colab colab-test test lint \
	unit form notebooks pages test-all exhaustive again test-torchtext parity run pretrain lab bench format lock clean

help: ## Say what each target does (this list)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup-book:
	@tools/environment.sh "$(VENV)" $(BUILD)

setup: ## Make the virtual environment and install what running the notebooks needs
	@tools/environment.sh "$(VENV)" $(READ)

setup-dev:
	@tools/environment.sh "$(VENV)" $(DEV)

# d2l asks for releases of NumPy and pandas that are too old for the rest, and does without them.
setup-bench:
	@tools/environment.sh "$(VENV)" $(BENCH)
	@$(BIN)/python -c "import d2l" 2>/dev/null || $(PIP) --quiet --no-deps d2l==1.0.3

# A failed build is removed: Sphinx would not repeat its warnings for pages that have not changed.
book: setup-book ## Build the book, warnings being errors, and say where the page is
	@echo "== The book"
# A page whose source has gone must go as well.
	@rm -rf _build/html
	@$(BIN)/python $(BIN)/jupyter-book build . -W -n --keep-going --quiet || { rm -rf _build; exit 1; }
	@echo "The book is built. Open: $(CURDIR)/_build/html/index.html"

book-zh: book ## The Chinese edition too, beside the English one
	@echo "== The Chinese edition"
	@$(RUN) tools.translation build
	@echo "The book is built. Open: $(CURDIR)/_build/html/zh/index.html"

translate: setup-book ## Carry the text along into locale/ and list what is to be translated
	@$(RUN) tools.translation update

colab: book ## The notebooks without MyST's markup, for Colab and download, in _build/colab/
	@echo "The plain notebooks are in $(CURDIR)/_build/colab"

# Their cells are those of the originals, which all run; `make again` runs all of these as well. Two
# are run here, where no support/ lies beside them, to see that nothing else is missing.
colab-test: setup-dev ## The plain notebooks say what the pages say, and run (after the book)
	@echo "== The plain notebooks"
	@$(RUN) pytest -q tests/test_plain_notebooks.py
	@PYTHONPATH=$(CURDIR) $(PYTEST) $(NBVAL) $(addprefix _build/colab/,$(PLAIN))

test: setup-dev lint unit form notebooks book-zh colab-test pages ## Prove everything but what takes long
	@echo "== All tests passed"

lint: setup-dev ## Lint and format of the code and of the notebooks' files
	@echo "== Lint and format"
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) tools.format_notebooks --check
	@$(RUN) tools.report

unit: setup-dev ## Unit tests of support/ and of the repository
	@echo "== Unit tests"
	@$(PYTEST) tests --ignore=tests/test_notebooks.py --ignore=tests/test_pages.py \
		--ignore=tests/test_editions.py --ignore=tests/test_plain_notebooks.py --ignore-glob='tests/test_play_*.py'

form: setup-dev ## The form of the notebooks
	@echo "== Form of the notebooks"
	@$(PYTEST) --dist=load tests/test_notebooks.py

notebooks: setup-dev ## Run every notebook in smoke and compare its outputs (nbval)
	@echo "== Every cell of every notebook, run and compared"
	@$(PYTEST) $(NBVAL) $(wildcard chapters solutions)

pages: setup-dev ## Open every built page in a headless browser (after the book)
	@echo "== The built pages in a browser"
	@$(RUN) pytest -q $(TWO) --dist=worksteal tests/test_pages.py tests/test_editions.py \
		tests/test_play_pages.py tests/test_play_engines.py

test-all: test exhaustive ## The tests, and the exhaustive ones that try everything
	@echo "== All tests passed, the exhaustive ones too"

exhaustive: setup-dev
	@echo "== Exhaustive tests"
	@$(PYTEST) -m exhaustive tests

again: colab ## Every notebook again: the plain ones, in the opposite order, on two threads each
	@echo "== Every notebook again: the plain ones, backwards, on two threads"
	@PYTHONPATH=$(CURDIR) $(PYTEST) --no-loadscope-reorder $(NBVAL) $$(ls -r _build/colab/*/*.ipynb)
# Here more threads run than a small machine has cores. One that waits must give up its core soon, or
# it keeps the very thread from running that it waits for.
again: export GOMP_SPINCOUNT ?= 1000
again: PYTEST := PRETRAIN_PROFILE=smoke OMP_NUM_THREADS=2 $(RUN) pytest -q $(TWO)

test-torchtext: export PYTHON ?= python3.12 python3.11 python3.10 python3
test-torchtext: ## Beside torchtext and its last PyTorch: the same results, every notebook again
	@$(MAKE) --no-print-directory VENV=.venv-torchtext REQUIREMENTS=requirements-torchtext.txt \
		parity again
	@echo "== All tests beside torchtext passed"

parity: setup-dev
	@echo "== Tokens, vocabularies and articles are those of torchtext"
	@PRETRAIN_PROFILE=smoke $(RUN) pytest -q -m "" tests/test_torchtext.py

run: setup ## Re-execute notebooks and save them clean: NB=chapters/x.ipynb PROFILE=laptop
	@$(if $(PROFILE),PRETRAIN_PROFILE=$(PROFILE)) $(RUN) tools.run_notebooks $(NB)

pretrain: setup ## Train a language model of a text: TEXT=file.txt OUT=folder ARGS="--model bert"
	@test -n "$(TEXT)" -a -n "$(OUT)" || { echo "Name a text and a folder: make pretrain TEXT=file.txt OUT=folder"; exit 2; }
	@$(RUN) support.pretrain --text $(TEXT) --out $(OUT) $(ARGS)

lab: setup ## Open the notebooks in JupyterLab
	@$(BIN)/jupyter lab chapters

bench: setup-bench ## Measure against d2l, gensim and tokenizers; print a table, write JSON
	@$(RUN) benchmarks.run

format: setup-dev ## Format code and notebooks; carry the repository's address, the map and the gallery along
	@$(RUN) tools.format_notebooks
	@$(RUN) tools.course_map
	@$(RUN) tools.gallery
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

lock: ## Renew the lock files (needs uv): ARGS=--upgrade takes the newest releases that fit
	@tools/lock.sh $(ARGS)

clean: ## Remove what was built and cached in the checkout; the environment stays
	rm -rf _build .cache .hypothesis *.egg-info
	find . -name .venv\* -prune -o -name __pycache__ -prune -exec rm -rf {} +
