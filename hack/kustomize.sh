#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Runs kustomize with the given arguments. It is built the first time, which takes half a minute
# (see hack/tools/build.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kustomize=$(hack/tools/build.sh kustomize)
exec "$kustomize" "$@"
