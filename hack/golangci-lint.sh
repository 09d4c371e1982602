#!/usr/bin/env bash
# Runs golangci-lint with the given arguments, "run" or "fmt" above all. Its version is
# that of hack/tools/lint/go.mod; the first time it is built, which takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$PWD/.cache/golangci-lint}
# It has all dependencies compiled; this way that is of use to "make build" as well.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS
exec go tool -modfile=hack/tools/lint/go.mod golangci-lint "$@"
