#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Packages the Helm chart into .cache/dist, or DIST (make chart):
#
#   VERSION=v1.2.3 IMAGE=example.com/configdep-apiserver hack/package-chart.sh
#
# VERSION is that of the images as well. One that is no semantic version, as git describes
# commits between releases, leaves what is in Chart.yaml. IMAGE, without a tag, becomes the
# default of image.repository, and AGENT_IMAGE, by default configdep-agent beside it, that of
# agent.image.repository. The annotation of Chart.yaml lists both, with VERSION.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'package-chart: %s\n' "$*" >&2; exit 1; }

chart=artifacts/charts/configdep
default=configdep/configdep-apiserver
default_agent=configdep/configdep-agent
version=${VERSION:-}
image=${IMAGE:-$default}
agent_image=$(hack/agent-image.sh "$image")
for name in "$image" "$agent_image"; do
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*$ && ${name##*/} != *:* ]] || fail "IMAGE=$name is not the name of an image without a tag"
done
flags=()
tag=latest # the appVersion in Chart.yaml
if [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  flags=(--version "${version#v}" --app-version "$version")
  tag=$version
fi
mkdir -p .cache "${DIST:-.cache/dist}"
tmp=$(mktemp -d .cache/chart.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
cp -R "$chart" "$tmp/configdep"
# The values, what the README says of them, and the list of images.
sed "s|^\( *\)repository: $default\$|\1repository: $image|; s|^\( *\)repository: $default_agent\$|\1repository: $agent_image|" \
  "$chart/values.yaml" >"$tmp/configdep/values.yaml"
sed "s#\"$default\"#\"$image\"#; s#\"$default_agent\"#\"$agent_image\"#" "$chart/README.md" >"$tmp/configdep/README.md"
sed "s|image: $default:latest\$|image: $image:$tag|; s|image: $default_agent:latest\$|image: $agent_image:$tag|" \
  "$chart/Chart.yaml" >"$tmp/configdep/Chart.yaml"
for name in "$image" "$agent_image"; do
  grep -qE "^ +repository: $name\$" "$tmp/configdep/values.yaml" || fail "values.yaml does not name the image $name"
  grep -qF "image: $name:$tag" "$tmp/configdep/Chart.yaml" || fail "Chart.yaml does not name the image $name:$tag"
done
hack/helm.sh package "$tmp/configdep" --destination "${DIST:-.cache/dist}" "${flags[@]}"
