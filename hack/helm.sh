#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Runs helm with the given arguments. It is built the first time, which takes minutes (see
# hack/tools/build.sh). It uses no configuration of the user's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm=$(hack/tools/build.sh helm)
for kind in CONFIG CACHE DATA; do
  export "HELM_${kind}_HOME=$PWD/.cache/helm"
done
exec "$helm" "$@"
