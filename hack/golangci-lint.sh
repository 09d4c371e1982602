#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Runs golangci-lint with the given arguments, "run" or "fmt" above all. Its version is
# that of hack/tools/lint/go.mod; the first time it is built, which takes minutes.
#
#   DIR     the folder of another module, such as test/monitoring     this one's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$PWD/.cache/golangci-lint}
# It has all dependencies compiled: with the settings of "make build", once for both.
GOFLAGS="$(go env GOFLAGS) -trimpath -tags=grpcnotrace"
export GOFLAGS CGO_ENABLED=0
root=$PWD
cd "${DIR:-.}"
exec go tool -modfile="$root/hack/tools/lint/go.mod" golangci-lint "$@"
