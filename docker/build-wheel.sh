#!/bin/sh
# Builds the wheel of the tree around this script:  docker/build-wheel.sh FOLDER
# With the locked build tools, and compiled where there is a C compiler, which takes some minutes.
set -eu
[ $# = 1 ] || { echo "usage: docker/build-wheel.sh FOLDER" >&2; exit 2; }
folder=$1
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r requirements/build.txt -r requirements/native.txt
"$tools/bin/python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$folder" .
