#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Prints the base images of the Dockerfile with the digests that their tags have now, as a release names them:
#
#   export $(hack/base-images.sh)
#
# It asks their registries, by docker's buildx.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'base-images: %s\n' "$*" >&2; exit 1; }

docker buildx version >/dev/null 2>&1 || fail "docker with buildx is needed (https://docs.docker.com/build/)"
base=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
[[ $base ]] || fail "the Dockerfile does not say BASE_IMAGE"
go_version=$(hack/go-version.sh)
for assignment in "BUILD_IMAGE=golang:$go_version" "BASE_IMAGE=$base"; do
  digest=$(docker buildx imagetools inspect "${assignment#*=}" --format '{{.Manifest.Digest}}')
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || fail "${assignment#*=} has the digest \"$digest\""
  printf '%s@%s\n' "$assignment" "$digest"
done
