// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/debian"
)

// unpack returns the folder with unpacked packages of Debian.
func unpack(t *testing.T, packages ...string) string {
	t.Helper()
	unpacked, err := debian.Unpack(t.Context(), packages...)
	if err != nil {
		t.Fatal(err)
	}
	return unpacked
}

// addDebian makes an image of unpacked packages. Beside what the arguments name, it gets the libraries that these programs load, from the
// packages or this machine, and what programs need to know of users.
func addDebian(t *testing.T, image, unpacked string, programs []string, args ...string) {
	t.Helper()
	base := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(base, "etc"), 0o755),
		os.WriteFile(filepath.Join(base, "etc", "passwd"), []byte("root:x:0:0:root:/:/bin/sh\npostgres:x:999:999:postgres:/:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(base, "etc", "group"), []byte("root:x:0:\npostgres:x:999:\n"), 0o644),
		os.Mkdir(filepath.Join(base, "tmp"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := machine.AddImage(t.Context(), image, slices.Concat(args, libraries(t, unpacked, programs), []string{base + "/=/"})...); err != nil {
		t.Fatal(err)
	}
}

// libraries returns the libraries that programs load, as arguments for an image.
func libraries(t *testing.T, unpacked string, programs []string) []string {
	t.Helper()
	found := map[string]bool{}
	for _, program := range programs {
		ldd := exec.CommandContext(t.Context(), "ldd", filepath.Join(unpacked, program))
		ldd.Env = debian.Environment(unpacked)
		out, err := ldd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "not found") {
			t.Fatalf("the libraries of %s: %v: %s", program, err, out)
		}
		for _, line := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			found[line[1]+"="+strings.TrimPrefix(line[1], unpacked)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// addNginx makes the image of nginx.
func addNginx(t *testing.T, image string) {
	t.Helper()
	unpacked := unpack(t, "nginx")
	addDebian(t, image, unpacked, []string{"usr/sbin/nginx"}, "-user=0:0", "-entrypoint=nginx", unpacked+"/usr/sbin/nginx=/usr/sbin/nginx")
}
