#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds what the demo needs and runs it (make demo), with the step. The first
# run compiles most of it; later ones find everything in .cache and in Go's build cache.
#
#   DEMO_EXIT=1      end after the tours, with an error if their output differs from the documents
#   DEMO_UPDATE=1    write the output into the documents
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for name in DEMO_EXIT DEMO_UPDATE; do
  [[ ${!name:-} =~ ^1?$ ]] || { echo "demo: $name=${!name}: must be 1, or empty" >&2; exit 2; }
done
progress() { echo "demo: step $1 of 8: $2" >&2; }
export -f progress

progress 1 "building the demo, the server and the plugin"
CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -o .cache/bin/demo/ ./test/demo ./cmd/configdep-apiserver ./cmd/kubectl-configdep
hack/controlplane/build.sh >/dev/null
exec .cache/bin/demo/demo
