#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Renders what can be installed.
#
#   hack/render.sh          the kustomize base and the chart, without values and with kinds of custom resources, into
#                           test/manifests/testdata/rendered, which is checked in: it shows what a change changes in a
#                           cluster (make manifests)
#   hack/render.sh FOLDER   these, what watches them, each overlay, and the chart with each values file of its
#                           folder ci, into FOLDER: package test/manifests tries them all
#
# To see what a change does to all of them, render into one folder before it and into another one after it, and
# compare these (diff -r).
set -euo pipefail

(($# <= 1)) || { echo "usage: hack/render.sh [FOLDER]" >&2; exit 2; }
all=${1:-}
if [[ $all ]]; then
  mkdir -p "$all"
  out=$(cd "$all" >/dev/null && pwd) # what is relative is relative to the caller's folder
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=artifacts/charts/configdep

render_kustomization() { hack/kustomize.sh build "artifacts/$1" >"$out/$2.yaml"; }
# The version of a release is stamped into the chart when it is packaged, never here.
render_chart() {
  hack/helm.sh template configdep "$chart" --namespace configdep-system --values "$chart/ci/$1.yaml" \
    >"$out/chart-$1.yaml"
}

if [[ ! $all ]]; then
  out=test/manifests/testdata/rendered
  rm -rf "$out"
  mkdir -p "$out"
  # What the chart includes as it is; a chart can have no files from outside of its folder.
  mkdir -p "$chart/files"
  cp artifacts/monitoring/dashboard.json artifacts/monitoring/prometheusrule.yaml "$chart/files/"
  render_kustomization base base
  render_chart default
  render_chart kinds # for the tests of its admission policies and webhooks
  exit
fi

render_kustomization base base
render_kustomization monitoring monitoring
for overlay in artifacts/overlays/*/; do
  name=$(basename "$overlay")
  render_kustomization "overlays/$name" "overlay-$name"
done
for values in "$chart"/ci/*.yaml; do
  render_chart "$(basename "$values" .yaml)"
done
