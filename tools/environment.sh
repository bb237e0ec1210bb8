#!/bin/sh
# Make the virtual environment, or leave it alone when nothing has changed since it was made.
#
#   tools/environment.sh FOLDER REQUIREMENTS [REQUIREMENTS…]
#
# The stamp FOLDER/installed-REQUIREMENTS holds a checksum of every file of requirements, of
# pyproject.toml and of where the checkout lies. While it matches, this ends without touching the
# network. A later file in the list includes the earlier ones, and only the last is installed.
# From a file of the form NAME.lock come exactly the releases that it lists, and a download that
# does not have its checksum is refused; without one, the newest releases that fit.
set -eu

folder=$1
shift
for last in "$@"; do :; done

checksum() {
    { cat requirements*.txt requirements*.lock pyproject.toml; pwd -P; } | cksum
}

stamp=$folder/installed-$last
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(checksum)" ]; then
    exit 0
fi

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

if ! { [ -x "$folder/bin/python" ] && "$folder/bin/python" -m pip --version >/dev/null 2>&1; }; then
    found=
    candidates=${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}
    for candidate in $candidates; do
        if new_enough "$candidate"; then
            found=$candidate
            break
        fi
    done
    if [ -z "$found" ]; then
        echo "This course needs Python 3.10 or newer. Looked for: $candidates" >&2
        for candidate in $candidates; do
            path=$(command -v "$candidate" || true)
            [ -z "$path" ] || echo "  $path is $("$candidate" --version 2>&1 | tail -n 1)" >&2
        done
        echo "Install a newer one, or name it: make book PYTHON=/path/to/python3.12" >&2
        exit 1
    fi
    echo "Making a virtual environment in $folder with $("$found" --version)"
    if ! "$found" -m venv --clear "$folder"; then
        rm -rf "$folder"
        echo "Python has no venv module. On Debian or Ubuntu: sudo apt install python3-venv" >&2
        exit 1
    fi
fi

echo "Installing $last into $folder (the first time takes a few minutes, mostly torch)"
rm -f "$folder"/installed-*
quiet=--quiet
[ ! -t 1 ] || quiet=  # at a terminal, pip's progress bars say that something is going on
case $last in
*.lock)
    "$folder/bin/python" -m pip install $quiet --require-hashes -r "$last"
    "$folder/bin/python" -m pip install $quiet --no-index --no-deps --no-build-isolation -e .
    ;;
*)
    "$folder/bin/python" -m pip install $quiet -r "$last" -e .
    ;;
esac
for name in "$@"; do
    checksum >"$folder/installed-$name"
done
