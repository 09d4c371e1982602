#!/usr/bin/env bash
# Renders everything that can be installed (make manifests): the kustomize base, its overlays,
# and the Helm chart with each values file of its folder ci. The results are checked in, so that
# a change shows what it changes in a cluster, and package test/manifests tries them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=test/manifests/testdata/rendered
chart=artifacts/charts/configdep
rm -rf "$out"
mkdir -p "$out"

hack/kustomize.sh build artifacts/base >"$out/base.yaml"
for overlay in artifacts/overlays/*/; do
  hack/kustomize.sh build "$overlay" >"$out/overlay-$(basename "$overlay").yaml"
done
for values in "$chart"/ci/*.yaml; do
  # The version of a release is stamped into the chart when it is packaged, never here.
  hack/helm.sh template configdep "$chart" --namespace configdep-system --values "$values" \
    >"$out/chart-$(basename "$values")"
done
