#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Packages the Helm chart into .cache/dist, or DIST (make chart):
#
#   VERSION=v1.2.3 IMAGE=example.com/configdep-apiserver hack/package-chart.sh
#
# VERSION is that of the image as well. One that is no semantic version, as git describes
# commits between releases, leaves what is in Chart.yaml. IMAGE, without a tag, becomes the
# default of image.repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'package-chart: %s\n' "$*" >&2; exit 1; }

chart=artifacts/charts/configdep
default=configdep/configdep-apiserver
version=${VERSION:-}
image=${IMAGE:-$default}
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*$ && ${image##*/} != *:* ]] || fail "IMAGE=$image is not the name of an image without a tag"
flags=()
if [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  flags=(--version "${version#v}" --app-version "$version")
fi
mkdir -p .cache "${DIST:-.cache/dist}"
tmp=$(mktemp -d .cache/chart.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
cp -R "$chart" "$tmp/configdep"
if [[ $image != "$default" ]]; then
  # The value, and what the README says of it.
  sed "s|^  repository: $default\$|  repository: $image|" "$chart/values.yaml" >"$tmp/configdep/values.yaml"
  sed "s#\"$default\"#\"$image\"#" "$chart/README.md" >"$tmp/configdep/README.md"
  grep -qF "  repository: $image" "$tmp/configdep/values.yaml" || fail "values.yaml does not name the image $default"
fi
hack/helm.sh package "$tmp/configdep" --destination "${DIST:-.cache/dist}" "${flags[@]}"
