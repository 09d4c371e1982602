#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Renders the Helm charts, which are the source of all manifests.
#
#   hack/render.sh          the charts without values, into artifacts/base and artifacts/policies, which are checked in: kustomize
#                           and the manifests of a release use them (make manifests). What needs Kubernetes 1.36 is a file of its own.
#   hack/render.sh FOLDER   the chart of the server with each values file of its folder ci, into FOLDER: package test/manifests
#                           tries them all
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
charts=artifacts/charts
# The version of a release is stamped into a chart when it is packaged, never here.
render() { hack/helm.sh template configdep "$charts/$1" --namespace configdep-system --skip-tests "${@:2}"; }

if [[ ! ${1:-} ]]; then
  # Without what concerns a release of Helm alone.
  base() {
    echo "# Rendered from $charts/$1 by hack/render.sh (make manifests). DO NOT EDIT."
    render "$@" | sed -E -e '/^# Source: /d' -e '/^ +(helm\.sh\/(chart|resource-policy)|app\.kubernetes\.io\/(instance|managed-by|version)): /d' \
      -e '/^  annotations:$/{' -e 'N' -e '/helm\.sh\/resource-policy: keep$/d' -e '}'
  }
  base configdep >artifacts/base/configdep.yaml
  base configdep-policies >artifacts/policies/policies.yaml
  base configdep --set mutatingAdmissionPolicies.enabled=true --show-only templates/mutatingadmissionpolicies.yaml >artifacts/base/annotations.yaml
  exit
fi

for values in "$charts"/configdep/ci/*.yaml; do
  render configdep --values "$values" >"$out/$(basename "$values")"
done
