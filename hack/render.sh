#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Renders what can be installed: the kustomize base and the Helm chart with its default values into
# test/manifests/testdata/rendered (make manifests), which is checked in, so that a change shows what it changes in
# a cluster. With a folder, everything is rendered there, as package test/manifests tries it: also the overlays,
# what watches the server, and the chart with each values file of its folder ci.
#
#   hack/render.sh [FOLDER]
set -euo pipefail
folder=${1:+$(mkdir -p "$1" && cd "$1" && pwd)}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=artifacts/charts/configdep

kustomize() { hack/kustomize.sh build "$1" >"$out/$2.yaml"; }

helm() { # values file
  # The version of a release is stamped into the chart when it is packaged, never here.
  hack/helm.sh template configdep "$chart" --namespace configdep-system --values "$1" >"$out/chart-$(basename "$1")"
}

if [[ -z $folder ]]; then
  # What the chart includes as it is; a chart can have no files from outside of its folder.
  mkdir -p "$chart/files"
  cp artifacts/monitoring/dashboard.json artifacts/monitoring/prometheusrule.yaml "$chart/files/"

  out=test/manifests/testdata/rendered
  rm -rf "$out"
  mkdir -p "$out"
  kustomize artifacts/base base
  helm "$chart/ci/default.yaml"
  exit
fi

out=$folder
kustomize artifacts/base base
kustomize artifacts/monitoring monitoring
for overlay in artifacts/overlays/*/; do
  kustomize "$overlay" "overlay-$(basename "$overlay")"
done
for values in "$chart"/ci/*.yaml; do
  helm "$values"
done
