#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Packages the Helm charts into .cache/dist, or DIST (make chart):
#
#   VERSION=v1.2.3 IMAGE=example.com/configdep-apiserver hack/package-chart.sh
#
# VERSION is that of the images as well. One that is no semantic version, as git describes
# commits between releases, leaves what is in Chart.yaml. IMAGE, without a tag, becomes the
# default of image.registry and image.repository in the chart of the server, and AGENT_IMAGE, by default configdep-agent beside it,
# that of agent.image. The annotation of Chart.yaml lists both, with VERSION, and IMAGE_DIGEST and
# AGENT_IMAGE_DIGEST if they are set: it is what the chart installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'package-chart: %s\n' "$*" >&2; exit 1; }

chart=artifacts/charts/configdep
default=ghcr.io/configdep/configdep
default_agent=ghcr.io/configdep/configdep-agent
version=${VERSION:-}
image=${IMAGE:-$default}
agent_image=$(hack/image-beside.sh configdep-agent "$image" "${AGENT_IMAGE:-}")
for name in "$image" "$agent_image"; do
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*$ && ${name##*/} != *:* ]] || fail "IMAGE=$name is not the name of an image without a tag"
done
flags=()
tag=unreleased # the appVersion in Chart.yaml
if [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  flags=(--version "${version#v}" --app-version "$version")
  tag=$version
fi
mkdir -p .cache "${DIST:-.cache/dist}"
tmp=$(mktemp -d .cache/chart.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
cp -R "$chart" "$tmp/configdep"
# The values, what the README says of them, and the list of images.
registry() { if [[ ${1%%/*} == *[.:]* || $1 == localhost/* ]]; then echo "${1%%/*}"; fi; } # else the first part is that of a name
image_registry=$(registry "$image") agent_registry=$(registry "$agent_image")
[[ $agent_registry != "$image_registry" ]] || agent_registry=
repository=${image#"${image_registry:+$image_registry/}"} agent_repository=${agent_image#"$(registry "$agent_image")"} agent_repository=${agent_repository#/}
sed "/^image:/,/^[a-z]*:\$/{s|^  registry: .*|  registry: \"$image_registry\"|; s|^  repository: .*|  repository: $repository|; }
  /^agent:/,/^[a-z]*:\$/{s|^    registry: .*|    registry: \"$agent_registry\"|; s|^    repository: .*|    repository: $agent_repository|; }" \
  "$chart/values.yaml" >"$tmp/configdep/values.yaml"
row() { printf 's#^\(| `%s` | \)`"[^"]*"`#\\1`"%s"`#;' "$1" "$2"; }
sed "$(row image.registry "$image_registry") $(row image.repository "$repository")
  $(row agent.image.registry "$agent_registry") $(row agent.image.repository "$agent_repository")" "$chart/README.md" >"$tmp/configdep/README.md"
image+=:$tag${IMAGE_DIGEST:+@$IMAGE_DIGEST} agent_image+=:$tag${AGENT_IMAGE_DIGEST:+@$AGENT_IMAGE_DIGEST}
sed "s|image: $default:unreleased\$|image: $image|; s|image: $default_agent:unreleased\$|image: $agent_image|" \
  "$chart/Chart.yaml" >"$tmp/configdep/Chart.yaml"
for name in "$image" "$agent_image"; do
  grep -qF "image: $name" "$tmp/configdep/Chart.yaml" || fail "Chart.yaml does not name the image $name"
done
hack/helm.sh package "$tmp/configdep" "$chart-policies" --destination "${DIST:-.cache/dist}" "${flags[@]}"
