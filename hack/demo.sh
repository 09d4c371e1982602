#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds what the demo needs and runs it (make demo), with the step and the time that is left. The first
# run compiles most of it; later ones find everything in .cache and in Go's build cache.
#
#   DEMO_EXIT=1      end after the tours, with an error if their output differs from the documents
#   DEMO_UPDATE=1    write the output into the documents
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for name in DEMO_EXIT DEMO_UPDATE; do
  [[ ${!name:-} =~ ^1?$ ]] || { echo "demo: $name=${!name}: must be 1, or empty" >&2; exit 2; }
done
# After the start of each step, how many seconds are left if everything is compiled, as measured on two cores. A
# step that takes longer, or less, than that changes the estimate for the rest.
DEMO_STARTED=$(date +%s)
export DEMO_STARTED DEMO_LEFT="730 412 73 61 46 41 37 31"
progress() { # number of the step, text
  local left total elapsed=$(($(date +%s) - DEMO_STARTED)) message="demo: step $1 of 8: $2"
  read -ra left <<<"$DEMO_LEFT"
  total=$((left[0] - left[$1 - 1]))
  left=${left[$1 - 1]}
  if ((total == 0)); then
    message+=" (takes minutes the first time; the next step says how many are left)"
  elif (($1 == 2 && elapsed < 30)); then
    message+=" (takes minutes if Kubernetes has to be compiled)"
  elif left=$((left * elapsed / total)) && ((left >= 60)); then
    message+=" (about $(((left + 59) / 60)) minutes left)"
  fi
  echo "$message" >&2
}
export -f progress

progress 1 "building the demo, the server and the plugin"
CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -o .cache/bin/demo/ ./test/demo ./cmd/configdep-apiserver ./cmd/kubectl-configdep
hack/controlplane/build.sh >/dev/null
exec .cache/bin/demo/demo
