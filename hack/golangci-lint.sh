#!/usr/bin/env bash
# Runs golangci-lint with the given arguments, "run" or "fmt" above all. Its version is
# that of hack/tools/lint/go.mod; the first time it is built, which takes minutes.
#
#   DIR     the folder of another module, such as test/monitoring     this one's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$PWD/.cache/golangci-lint}
# It has all dependencies compiled; this way that is of use to "make build" as well.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS
root=$PWD
cd "${DIR:-.}"
exec go tool -modfile="$root/hack/tools/lint/go.mod" golangci-lint "$@"
