#!/bin/sh
# Make the virtual environment, or leave it alone when nothing has changed since it was made.
#
#   tools/environment.sh FOLDER REQUIREMENTS [REQUIREMENTS…]
#
# A later file of requirements includes the earlier ones, and only the last is installed. From a file
# NAME.lock come exactly the releases that it lists, and a download that does not have its checksum is
# refused; from NAME.txt, the newest releases that fit. uv does the work where it is on PATH (UV=
# declines it), else pip. For the book alone, nothing of this project is installed.
#
# The stamp FOLDER/installed-NAME holds a checksum of every file of requirements, of
# pyproject.toml and of where the checkout lies. While it matches, this ends without the network.
set -eu

folder=$1
shift
for last in "$@"; do :; done

checksum() {
    { cat requirements.txt requirements/* pyproject.toml; pwd -P; } | cksum
}

stamp=$folder/installed-$(basename "$last")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(checksum)" ]; then
    exit 0
fi

python=$folder/bin/python
uv=$(command -v "${UV-uv}" || true)

works() {
    if [ "$uv" ]; then "$python" -c ''; else "$python" -m pip --version; fi >/dev/null 2>&1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

if ! works; then
    found=
    candidates=${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}
    for candidate in $candidates; do
        if new_enough "$candidate"; then
            found=$(command -v "$candidate")
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
    if [ "$uv" ]; then
        "$uv" venv --quiet --clear --python "$found" "$folder"
    elif ! "$found" -m venv --clear "$folder"; then
        rm -rf "$folder"
        echo "Python has no venv module. On Debian or Ubuntu: sudo apt install python3-venv" >&2
        exit 1
    fi
fi

install() {
    if [ "$uv" ]; then
        "$uv" pip install --quiet --python "$python" "$@"
    else
        "$python" -m pip install --quiet --quiet "$@"  # errors alone
    fi
}

case $last in
*/book.*) echo "Installing $last into $folder (the first time, about a minute)" ;;
*) echo "Installing $last into $folder (the first time, some minutes: PyTorch is large)" ;;
esac
rm -f "$folder"/installed-*
case $last in
*/book.txt) install -r "$last" ;;
*/book.lock) install --require-hashes -r "$last" ;;
*.lock)
    install --require-hashes -r "$last"
    install --no-index --no-deps --no-build-isolation -e .
    ;;
*) install -r "$last" -e . ;;
esac
for name in "$@"; do
    checksum >"$folder/installed-$(basename "$name")"
done
