#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Renders the Helm chart, which is the source of all manifests.
#
#   hack/render.sh          the chart without values, into artifacts/base, which is checked in: kustomize and the manifests of
#                           a release use it (make manifests). What needs Kubernetes 1.36 is a file of its own.
#   hack/render.sh FOLDER   the chart with each values file of its folder ci, into FOLDER: package test/manifests tries
#                           them all
#
# To see what a change does to all of them, render into one folder before it and into another one after it, and
# compare these (diff -r).
set -euo pipefail

(($# <= 1)) || { echo "usage: hack/render.sh [FOLDER]" >&2; exit 2; }
if [[ ${1:-} ]]; then
  mkdir -p "$1"
  out=$(cd "$1" >/dev/null && pwd) # what is relative is relative to the caller's folder
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=artifacts/charts/configdep
# The version of a release is stamped into the chart when it is packaged, never here.
render() { hack/helm.sh template configdep "$chart" --namespace configdep-system --skip-tests "$@"; }

if [[ ! ${1:-} ]]; then
  # Without what concerns a release of Helm alone.
  base() {
    echo "# Rendered from $chart by hack/render.sh (make manifests). DO NOT EDIT."
    render "$@" | sed -E -e '/^# Source: /d' -e '/^ +(helm\.sh\/chart|app\.kubernetes\.io\/(instance|managed-by|version)): /d' \
      -e '/^  annotations:$/{' -e 'N' -e '/helm\.sh\/resource-policy: keep$/d' -e '}'
  }
  base >artifacts/base/configdep.yaml
  base --set mutatingAdmissionPolicies.enabled=true --show-only templates/mutatingadmissionpolicies.yaml >artifacts/base/annotations.yaml
  exit
fi

for values in "$chart"/ci/*.yaml; do
  render --values "$values" >"$out/$(basename "$values")"
done
