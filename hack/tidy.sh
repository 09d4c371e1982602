#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Brings into order what is edited by hand: go.mod and go.sum of every module, and the
# format and the imports of Go code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/align.sh
while IFS= read -r -d '' file; do
  (cd "$(dirname "$file")" && go mod tidy)
done < <(find . -path './.*' -prune -o -name go.mod -print0)

hack/golangci-lint.sh fmt
