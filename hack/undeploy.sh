#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Removes what hack/deploy.sh has installed from the cluster of the current kubectl context:
#
#   hack/undeploy.sh                (make undeploy)
#
#   KUBECTL   the kubectl to use                             kubectl
#   TIMEOUT   how long each wait may take                    180s
#
# It may be run again, and on a cluster that holds nothing of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kubectl=${KUBECTL:-kubectl}
timeout=${TIMEOUT:-180s}

say() { printf 'undeploy: %s\n' "$*"; }

say "deleting the API, the server, its permissions and its namespace, with the serving certificate and the key of the config hash"
files=(-f artifacts/base/namespace.yaml -f artifacts/base/configdep.yaml)
# Kubernetes below 1.36 does not know the kinds of this one.
[[ $("$kubectl" get --raw /apis/admissionregistration.k8s.io/v1) != *'"mutatingadmissionpolicies"'* ]] || files+=(-f artifacts/base/annotations.yaml)
"$kubectl" delete "${files[@]}" --ignore-not-found --wait=true --timeout="$timeout"

say "done; workloads run on, and keep their configdep.io annotations"
