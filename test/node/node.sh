# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# The life of a node, see node.go. $1 is its folder, which is removed in the end if $2 is not empty. It lives as long
# as the other end of its standard input is open.
trap '' HUP INT TERM # these are meant for the process that reads what this one writes
folder=$1 remove=$2
name=configdep-${folder##*/}

# The first process in the namespaces. Everything in them ends with it.
inside() {
  set -euo pipefail
  read -r pid _ </proc/self/stat # of this machine's namespace, while this is its /proc
  mount -t proc proc /proc
  # Volumes that the kubelet mounts must be seen in containers.
  mount --make-rshared /
  mount -t tmpfs -o mode=755 tmpfs /run
  mount --bind "$folder/lib" /var/lib
  mount --bind "$folder/log" /var/log
  # The kubelet sets these, which belong to the whole machine, unless they are as it wants them.
  while read -r path value; do
    [[ -e /proc/sys/$path ]] || continue
    echo "$value" >"$folder/sysctl/${path##*/}"
    mount --bind "$folder/sysctl/${path##*/}" "/proc/sys/$path"
  done <<'SYSCTLS'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SYSCTLS
  ip link set lo up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo "$pid"
  read -r _ || true
}

hierarchies() { awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts; }

make_cgroups() {
  local hierarchy file
  for hierarchy in $(hierarchies); do
    mkdir "$hierarchy/$name" || return 1
    # Without CPUs and memory of its own, a cgroup of version 1 takes no process.
    for file in cpuset.cpus cpuset.mems; do
      [[ $(stat -f -c %T "$hierarchy") == cgroupfs && -e $hierarchy/$file ]] || continue
      cat "$hierarchy/$file" >"$hierarchy/$name/$file" || return 1
    done
  done
}

export folder
export -f inside
code=1
if make_cgroups; then
  unshare --mount --propagation private --uts --ipc --net --pid --fork --kill-child bash -c inside
  code=$?
fi

for hierarchy in $(hierarchies); do
  # Processes that have been killed leave their cgroups a moment later.
  for ((tries = 0; tries < 100; tries++)); do
    [[ -d $hierarchy/$name ]] || break
    find "$hierarchy/$name" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.1
  done
  if [[ -d $hierarchy/$name ]]; then
    echo "cannot remove $hierarchy/$name" >&2
    code=1
  fi
done
[[ -z $remove ]] || rm -rf -- "$folder"
exit "$code"
