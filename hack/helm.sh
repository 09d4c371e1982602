#!/usr/bin/env bash
# Runs helm with the given arguments. Its version is that of hack/tools/helm/go.mod; the first
# time it is built, which takes a minute or two. It uses no configuration of the user's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Shares what is compiled with "make build".
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS
for kind in CONFIG CACHE DATA; do
  export "HELM_${kind}_HOME=$PWD/.cache/helm"
done
exec go tool -modfile=hack/tools/helm/go.mod helm "$@"
