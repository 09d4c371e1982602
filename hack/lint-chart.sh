#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Lints the Helm chart with each values file of its folder ci; warnings count.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=artifacts/charts/configdep
for values in "$chart"/ci/*.yaml; do
  hack/helm.sh lint --strict --quiet "$chart" --namespace configdep-system --values "$values" || {
    printf 'lint-chart: the chart has findings with %s\n' "$values" >&2
    exit 1
  }
done
