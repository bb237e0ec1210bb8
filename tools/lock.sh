#!/bin/sh
# Renew the lock files: every release that is installed, each file of it with its checksum.
#
#   tools/lock.sh              # follow the requirements; keep every pin that still fits
#   tools/lock.sh --upgrade    # take the newest releases that the requirements admit
#
# Needs uv (pip install uv) and the network. One lock serves Linux, macOS and Windows on every
# Python from 3.10 on. A cap of your own for one run goes into a file of constraints:
#   UV_CONSTRAINT=caps.txt tools/lock.sh --upgrade
set -eu
cd "$(dirname "$0")/.."

uv=${UV:-uv}
if ! command -v "$uv" >/dev/null; then
    echo "This needs uv: pip install uv, or name it: UV=/path/to/uv tools/lock.sh" >&2
    exit 1
fi

# What builds the course itself is locked as well: a locked install builds without isolation.
builds() {
    sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml
}

lock() {
    echo "Locking $2 in $1"
    lock=$1
    asked=$2
    shift 2
    builds | "$uv" pip compile --quiet --universal --python-version 3.10 --generate-hashes \
        --no-annotate --custom-compile-command tools/lock.sh --output-file "$lock" "$@" "$asked" -
}

lock requirements/dev.lock requirements/dev.txt "$@"
# The readers' releases, and the book's, are those that the tests ran with.
lock requirements/reader.lock requirements.txt --constraint requirements/dev.lock "$@"
lock requirements/book.lock requirements/book.txt --constraint requirements/dev.lock "$@"
lock requirements/torchtext.lock requirements/torchtext.txt "$@"
# Whether the lower bounds are true; for Python 3.10, which has wheels of all of them.
lock requirements/oldest.lock requirements/dev.txt --resolution lowest-direct "$@"
