#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Looks for the licence header of hack/boilerplate.go.txt in every Go file and every script.
#
#   hack/licence-headers.sh check    lists the files that lack it, and fails if there are any (make verify)
#   hack/licence-headers.sh apply    adds it to those that are written by hand (make tidy)
#
# It is at the very top, below the #! line of a script, with an empty line after it. In what is generated, it may be below
# build constraints; generators put it there (make generate).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

usage() { echo "usage: hack/licence-headers.sh check|apply" >&2; exit 2; }
(($# == 1)) || usage
mode=$1
[[ $mode == check || $mode == apply ]] || usage

mapfile -t go_header <hack/boilerplate.go.txt
script_header=("${go_header[@]/#\/\//#}")
[[ ${go_header[0]:-} == //* ]] || { echo "licence-headers: hack/boilerplate.go.txt is empty" >&2; exit 1; }

insert() { # file, the number of lines that stay above, the header
  cp -p "$1" "$tmp" # with its mode
  {
    head -n "$2" "$1"
    printf '%s\n' "${@:3}" ""
    tail -n +"$(($2 + 1))" "$1" | sed '1{/^$/d;}'
  } >"$tmp"
  mv "$tmp" "$1" # not in place: it may be a script that runs, such as this one
}
# The lines above the package clause, if they say that the file is generated.
generated() {
  awk '/^package / { exit } { all = all $0 "\n" } /^\/\/ Code generated .* DO NOT EDIT\.$/ { is = 1 } END { if (is) printf "%s", all; exit !is }' "$1"
}

mkdir -p .cache
tmp=$(mktemp .cache/licence-headers.XXXXXX)
trap 'rm -f "$tmp"' EXIT

lacking=()
while IFS= read -r -d '' file; do
  [[ -f $file && ! -L $file ]] || continue
  mapfile -t -n "$((${#go_header[@]} + 2))" lines <"$file"
  above=0
  case $file in
    *.go) header=("${go_header[@]}") ;;
    *)
      [[ $file == *.sh || ${lines[0]:-} == '#!/usr/bin/env bash' ]] || continue
      header=("${script_header[@]}")
      [[ ${lines[0]:-} != '#!'* ]] || above=1
      ;;
  esac
  begins=("${lines[@]:above:${#header[@]}+1}")
  want=("${header[@]}" "")
  [[ ${begins[*]@Q} != "${want[*]@Q}" ]] || continue
  if [[ $file == *.go ]] && preamble=$(generated "$file"); then
    text=$(printf '%s\n' "${header[@]}")
    [[ $mode == apply || $preamble == *"$text"* ]] || lacking+=("$file (make generate)")
  elif [[ $mode == apply ]]; then
    insert "$file" "$above" "${header[@]}"
  else
    lacking+=("$file")
  fi
done < <(git ls-files -z --cached --others --exclude-standard)

if ((${#lacking[@]} > 0)); then
  printf 'licence-headers: missing in %s\n' "${lacking[@]}" >&2
  echo "licence-headers: run: make tidy" >&2
  exit 1
fi
