#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Runs the tests on a real node (make e2e-node). Settings are environment variables:
#
#   E2E_NODE        "required" or "optional": whether it is an error if this machine cannot
#                   run a node. The reason is printed either way.             required
#   TEST_FLAGS      more flags of go test: -run TestE2E/(^install|workloads)/rollout -v
#   TEST_TIMEOUT    for all tests of a package                                     20m
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'e2e-node: %s\n' "$*" >&2; }

E2E_NODE=${E2E_NODE:-required}
case $E2E_NODE in
  required | optional) ;;
  *) say "E2E_NODE=$E2E_NODE is neither required nor optional"; exit 1 ;;
esac
# With the flags of make build, so that what that has compiled is not compiled again.
export CGO_ENABLED=0
compile=(-trimpath -tags grpcnotrace)
if ! missing=$(go run "${compile[@]}" ./test/node/missing); then
  # Without a reason the program itself has failed, for example to compile.
  [[ $missing ]] || { say "whether this machine can run a node is not known: the reason is above"; exit 1; }
  say "this machine cannot run a node: $missing"
  [[ $E2E_NODE == optional ]] || exit 1
  say "nothing was tested"
  exit 0
fi

# What tests run is built before them, so that no time limit of a test includes a build.
hack/controlplane/build.sh >/dev/null
hack/node/build.sh >/dev/null
hack/tools/build.sh helm image >/dev/null
# One package after the other: the first compares the machine before and after a node.
export E2E_NODE
read -ra flags <<<"${TEST_FLAGS:-}"
go test "${compile[@]}" -vet=off -count=1 -p 1 -timeout "${TEST_TIMEOUT:-20m}" "${flags[@]}" ./test/node ./test/e2e
