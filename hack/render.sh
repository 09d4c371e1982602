#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Renders everything that can be installed (make manifests): the kustomize base, its overlays,
# what watches it, and the Helm chart with each values file of its folder ci. The results are checked in, so that
# a change shows what it changes in a cluster, and package test/manifests tries them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=test/manifests/testdata/rendered
chart=artifacts/charts/configdep
rm -rf "$out"
mkdir -p "$out"

# What the chart includes as it is; a chart can have no files from outside of its folder.
mkdir -p "$chart/files"
cp artifacts/monitoring/dashboard.json artifacts/monitoring/prometheusrule.yaml "$chart/files/"

hack/kustomize.sh build artifacts/base >"$out/base.yaml"
hack/kustomize.sh build artifacts/monitoring >"$out/monitoring.yaml"
for overlay in artifacts/overlays/*/; do
  hack/kustomize.sh build "$overlay" >"$out/overlay-$(basename "$overlay").yaml"
done
for values in "$chart"/ci/*.yaml; do
  # The version of a release is stamped into the chart when it is packaged, never here.
  hack/helm.sh template configdep "$chart" --namespace configdep-system --values "$values" \
    >"$out/chart-$(basename "$values")"
done
