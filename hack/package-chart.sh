#!/usr/bin/env bash
# Packages the Helm chart into .cache/dist, or DIST (make chart):
#
#   VERSION=v1.2.3 hack/package-chart.sh
#
# VERSION is that of the image as well. One that is no semantic version, as git describes
# commits between releases, leaves what is in Chart.yaml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${VERSION:-}
flags=()
if [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  flags=(--version "${version#v}" --app-version "$version")
fi
mkdir -p "${DIST:-.cache/dist}"
hack/helm.sh package artifacts/charts/configdep --destination "${DIST:-.cache/dist}" "${flags[@]}"
