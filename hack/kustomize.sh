#!/usr/bin/env bash
# Runs kustomize with the given arguments. Its version is that of hack/tools/kustomize/go.mod; the
# first time it is built, which takes half a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS
exec go tool -modfile=hack/tools/kustomize/go.mod kustomize "$@"
