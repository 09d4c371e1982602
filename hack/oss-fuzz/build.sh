#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Compiles every fuzz target of the tree for OSS-Fuzz, in its image (see the Dockerfile beside it),
# from the root of the tree.
#
#   hack/oss-fuzz/build.sh           into $OUT
#   hack/oss-fuzz/build.sh --list    only says which: a line with the package and the function for each
set -euo pipefail

targets() {
  grep -rhoE --include='*_test.go' --with-filename '^func Fuzz[A-Za-z0-9_]*' pkg cmd test | sort |
    sed -E 's|^(.*)/[^/]*:func (Fuzz.*)$|./\1 \2|'
}
if [[ ${1:-} == --list ]]; then
  targets
  exit
fi

if [[ ! ${OUT:-} ]] || ! command -v compile_native_go_fuzzer_v2 >/dev/null; then
  echo "oss-fuzz: this changes the tree, and runs in the image of OSS-Fuzz alone" >&2
  exit 1
fi
# Tests become ordinary files of their package, which those of another package beside it (x_test) cannot.
grep -rlE --include='*_test.go' '^package [a-z0-9]+_test$' pkg cmd test | xargs -r rm
go get github.com/AdamKorcz/go-118-fuzz-build/testing
module=$(go list -m)
targets | while read -r package function; do
  name=${package#./}
  compile_native_go_fuzzer_v2 "$module/$name" "$function" "${name//\//_}_$function"
done
