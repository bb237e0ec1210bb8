# Two commands: `make book` and `make test`. `make` alone lists the rest. COURSE_LANGUAGES=en before
# any of them leaves the Chinese edition out.

VENV ?= .venv
REQUIREMENTS ?= requirements.txt
LOCKED ?=
ARGS ?=
PROFILE ?=
NB ?=
TEXT ?=
OUT ?=
ENTRY ?=
PLAIN ?= chapters/bpe.ipynb solutions/exercise_27_6.ipynb
NOTEBOOKS ?= chapters solutions labs

PROCESSES ?= 2
# The notebooks take longest: `make test` gives them more processes than its other parts.
NOTEBOOK_PROCESSES ?= $(PROCESSES)

# A value in single quotes, as the shell takes it literally: spaces, brackets, ? * $ and all.
quoted = '$(subst ','\'',$(value $(1)))'

PYTHON_HERE := "$(VENV)/bin/python"
RUN := $(PYTHON_HERE) -m
# uv installs where it is there, else pip; UV= declines it. See tools/environment.sh.
export UV ?= uv
PIP := $(if $(shell command -v "$(UV)" 2>/dev/null),"$(UV)" pip install --python $(PYTHON_HERE),$(RUN) pip install)
CACHE := $(CURDIR)/.cache

# LOCKED=1 installs the releases of the lock files, checksums and all, in place of the newest.
# A set of its own, such as requirements/torchtext.txt, serves every need.
ifeq ($(REQUIREMENTS),requirements.txt)
BUILD := requirements/book.txt
READ := $(BUILD) requirements.txt
DEV := $(READ) requirements/dev.txt
BENCH := $(DEV) requirements/bench.txt
else
BUILD := $(REQUIREMENTS)
READ := $(REQUIREMENTS)
DEV := $(REQUIREMENTS)
BENCH := $(REQUIREMENTS)
endif
ifneq ($(LOCKED),)
locked = $(patsubst %.txt,%.lock,$(patsubst requirements.txt,requirements/reader.txt,$(1)))
BUILD := $(call locked,$(BUILD))
READ := $(call locked,$(READ))
DEV := $(call locked,$(DEV))
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
book book-zh chinese colab-test unit exhaustive notebooks again pages parity: export XDG_CACHE_HOME := $(CACHE)/xdg

# In each process one thread: on two cores that is sooner through.
THREADS := 1
PYTEST = PRETRAIN_PROFILE=smoke OMP_NUM_THREADS=$(THREADS) $(RUN) pytest -q --numprocesses=$(PROCESSES) --dist=loadfile
NBVAL := -p tools.notebook_seconds --nbval --nbval-current-env --nbval-cell-timeout=600
PAGES := tests/test_pages.py tests/test_editions.py tests/test_folds.py tests/test_slides.py $(sort $(wildcard tests/test_play_*.py))

.NOTPARALLEL:
.PHONY: help setup-book setup setup-dev setup-bench book book-zh chinese slides archive check print translate colab colab-test test lint \
	sizes unit notebooks pages release test-all exhaustive again test-torchtext parity run pretrain lab labs exam exports speedrun bench format lock clean

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
	@$(PYTHON_HERE) -c "import d2l" 2>/dev/null || $(PIP) --quiet --no-deps d2l==1.0.3

# A failed build is removed: Sphinx would not repeat its warnings for pages that have not changed.
book: setup-book ## Build the book, warnings being errors, and say where the page is
# A page whose source has gone must go as well.
	@rm -rf _build/html
	@$(PYTHON_HERE) "$(VENV)/bin/jupyter-book" build . -W -n --keep-going --quiet || { rm -rf _build; exit 1; }
	@echo The book is built. Open: $(call quoted,CURDIR)/_build/html/index.html

book-zh: book chinese ## The Chinese edition too, beside the English one

chinese: setup-book
	@$(RUN) tools.translation build

slides: book-zh ## A deck of slides a chapter, in both editions, in _build/html/slides/
	@$(RUN) tools.slides

archive: book-zh ## Both editions in one file to read without a network, in _build/
	@$(RUN) tools.archive

check: setup-book ## Seconds: the form of the files that you have changed
	@$(RUN) tools.check

print: setup-dev ## The built book as PDF in _build/print/, whole and a chapter each: ARGS=--solutions
	@$(RUN) tools.print $(ARGS)

translate: setup-book ## Carry the text along into locale/ and list what is to be translated
	@$(RUN) tools.translation update

colab: book ## The notebooks without MyST's markup, for Colab and download, in _build/colab/
	@echo The plain notebooks are in $(call quoted,CURDIR)/_build/colab

# Their cells are those of the originals, which all run; `make again` runs all of these as well. Two
# are run here, where no support/ lies beside them, to see that nothing else is missing.
colab-test: setup-dev ## The plain notebooks say what the pages say, and run (after the book)
	@$(RUN) pytest -q tests/test_plain_notebooks.py
	@PYTHONPATH=$(call quoted,CURDIR) $(PYTEST) $(NBVAL) $(addprefix _build/colab/,$(PLAIN))

test: setup-dev ## Prove everything but what takes long, and say how long each part took
	@$(RUN) tools.stages

lint: setup-book ## Lint and form of all files, and the sizes
	@$(RUN) tools.check --all
	@$(RUN) tools.report
	@$(RUN) tools.sizes

sizes: setup-book ## How large support/, pretrain/ and the tests are, each with its limit
	@$(RUN) tools.sizes

unit: setup-dev ## Unit tests of support/ and of the repository
	@$(PYTEST) tests --ignore=tests/test_plain_notebooks.py $(PAGES:%=--ignore=%)

notebooks: override PROCESSES := $(NOTEBOOK_PROCESSES)
notebooks: setup-dev ## Run every notebook in smoke and compare its outputs (nbval)
	@$(PYTEST) $(NBVAL) $(NOTEBOOKS)

pages: setup-dev ## Open every built page in a headless browser (after the book)
	@$(PYTEST) --dist=worksteal $(PAGES)

release: test ## The tests, and that nothing is left to translate
	@$(RUN) tools.translation complete

test-all: test exhaustive again ## The tests, the exhaustive ones, and every notebook again

exhaustive: setup-dev
	@$(PYTEST) -m exhaustive tests

again: book-zh ## Every notebook again: the plain Chinese ones, in the opposite order, on two threads each
# English ones, where COURSE_LANGUAGES=en has left the Chinese out.
	@PYTHONPATH=$(call quoted,CURDIR) $(PYTEST) --no-loadscope-reorder $(NBVAL) --nbval-sanitize-with=tools/labels.cfg \
		$$(cd _build/colab; test ! -d zh || cd zh; ls -r "$$PWD"/[cs]*/*.ipynb)
# Here more threads run than a small machine has cores. One that waits must give up its core soon, or
# it keeps the very thread from running that it waits for.
again: export GOMP_SPINCOUNT ?= 1000
again: THREADS := 2

test-torchtext: export PYTHON ?= python3.12 python3.11 python3.10 python3
test-torchtext: ## Beside torchtext and its last PyTorch: the same results, and every notebook
	@$(MAKE) --no-print-directory VENV=.venv-torchtext REQUIREMENTS=requirements/torchtext.txt parity notebooks

parity: setup-dev
	@PRETRAIN_PROFILE=smoke $(RUN) pytest -q -m "" tests/test_torchtext.py

run: setup ## Re-execute notebooks and save them clean: NB=chapters/x.ipynb PROFILE=laptop
	@$(if $(PROFILE),PRETRAIN_PROFILE=$(PROFILE)) $(RUN) tools.run_notebooks $(if $(value NB),$(call quoted,NB)) $(ARGS)

# Any name will do, in quotes: make pretrain TEXT='my texts/a [new] book.txt' OUT='my model'
pretrain: setup ## Train a language model of a text: TEXT=file.txt OUT=folder ARGS="--model bert"
	@test -n $(call quoted,TEXT) && test -n $(call quoted,OUT) || { echo "Name a text and a folder: make pretrain TEXT=file.txt OUT=folder"; exit 2; }
	@$(RUN) pretrain --text $(call quoted,TEXT) --out $(call quoted,OUT) $(ARGS)

lab: setup ## Open the notebooks in JupyterLab, as copies of your own in my_notebooks/
	@$(PYTHON_HERE) "$(VENV)/bin/jupyter-book" build . --quiet --builder custom --custom-builder plain >/dev/null
	@$(RUN) tools.lab
	@"$(VENV)/bin/jupyter" lab my_notebooks

labs: setup-dev ## The labs below _build/labs/: blank, solved, and for nbgrader and Otter
	@$(RUN) tools.labs make

exam: setup-dev ## An exam and its answer sheet, as notebooks and PDFs, in _build/exam/: ARGS="--seed 7 --weeks 1-5"
	@$(RUN) tools.exam $(ARGS)

exports: setup-dev ## nbgrader and Otter grade each lab, solved and blank (installs them): ARGS="bpe gpt"
	@$(RUN) tools.exports $(ARGS)

speedrun: setup ## Train an entry in its budget, and judge it: ENTRY=labs/speedrun/x.py
	@test -n $(call quoted,ENTRY) || { echo "Name an entry: make speedrun ENTRY=labs/speedrun/chapter.py"; exit 2; }
	@$(RUN) tools.speedrun $(call quoted,ENTRY) $(ARGS)

bench: setup-bench ## Measure against d2l, gensim and tokenizers; print a table, write JSON
	@$(RUN) benchmarks.run

# The gallery's pictures are cut out of outputs, which only those have changed who have Pillow.
format: setup-book ## Format code and notebooks; carry the repository's address, the map and the gallery along
	@$(RUN) tools.format_notebooks
	@$(RUN) tools.course_map
	@if $(PYTHON_HERE) -c "import PIL" 2>/dev/null; then $(RUN) tools.gallery; fi
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

lock: ## Renew the lock files (needs uv): ARGS=--upgrade takes the newest releases that fit
	@tools/lock.sh $(ARGS)

clean: ## Remove what was built and cached in the checkout; the environment stays
	rm -rf _build .cache .hypothesis *.egg-info
	find . -name .venv\* -prune -o -name __pycache__ -prune -exec rm -rf {} +
