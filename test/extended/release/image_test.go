// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The archives that are made without docker are reproducible, say the same as the Dockerfile, and their programs run.
func TestImageArchives(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(t.TempDir(), "authorities.pem")
	if err := os.WriteFile(certificates, []byte("authorities\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := t.TempDir(), t.TempDir()
	env := append(os.Environ(), "VERSION="+version, "IMAGE="+repository+":"+version, "SOURCE_DATE_EPOCH="+epoch, "CA_CERTIFICATES="+certificates)
	execute(t, root, append(env, "DIST="+first), "hack/image-archive.sh")
	execute(t, root, append(env, "DIST="+second, "TZ=Asia/Tokyo", "GOFLAGS=-ldflags=-w"), "bash", "-c", "umask 077; exec hack/image-archive.sh")

	_, stages := dockerfile(t, root)
	programs := t.TempDir()
	execute(t, root, append(os.Environ(), "VERSION="+version, "GOOS=linux"), "hack/build.sh", programs,
		"./cmd/configdep-apiserver", "./cmd/configdep-agent", "./cmd/configdep-restarter")
	for stage, test := range map[string]struct{ name, repository string }{
		"server": {"configdep-apiserver", repository},
		"agent":  {"configdep-agent", agentRepository},
	} {
		t.Run(stage, func(t *testing.T) {
			file := test.name + "_" + version + "_linux_" + runtime.GOARCH + ".image.tar"
			content, err := os.ReadFile(filepath.Join(first, file))
			if err != nil {
				t.Fatal(err)
			}
			if again, err := os.ReadFile(filepath.Join(second, file)); err != nil || !bytes.Equal(content, again) {
				t.Errorf("a second archive differs (%v)", err)
			}
			made := readImage(t, content)
			if diff := cmp.Diff(test.repository+":"+version, made.name); diff != "" {
				t.Errorf("name (-want +got):\n%s", diff)
			}

			want := imageOf(t, stages, stage, map[string]string{
				"VERSION": version, "CREATED": "2023-11-14T22:13:20Z", "REVISION": strings.TrimSpace(execute(t, root, os.Environ(), "git", "rev-parse", "HEAD")),
			})
			delete(want.labels, "org.opencontainers.image.base.name") // it has no base image
			if diff := cmp.Diff(want.labels, made.config.Config.Labels); diff != "" {
				t.Errorf("labels (-Dockerfile +archive):\n%s", diff)
			}
			if entrypoint := fmt.Sprintf("[%q]", strings.Join(made.config.Config.Entrypoint, `", "`)); entrypoint != want.entrypoint || made.config.Config.User != want.user {
				t.Errorf("entrypoint = %s, user = %s, want as in the Dockerfile %s and %s", entrypoint, made.config.Config.User, want.entrypoint, want.user)
			}
			if made.config.OS != "linux" || made.config.Architecture != runtime.GOARCH || made.config.Created != "2023-11-14T22:13:20Z" {
				t.Errorf("config = %+v, want the platform and the time", made.config)
			}

			modes := map[string]string{
				"etc/": "drwxr-xr-x", "etc/group": "-rw-r--r--", "etc/nsswitch.conf": "-rw-r--r--", "etc/passwd": "-rw-r--r--", "etc/ssl/": "drwxr-xr-x",
				"etc/ssl/certs/": "drwxr-xr-x", "etc/ssl/certs/ca-certificates.crt": "-rw-r--r--", "tmp/": "dtrwxrwxrwx",
			}
			for path := range want.files {
				modes[path[1:]] = "-rwxr-xr-x"
				program, err := os.ReadFile(filepath.Join(programs, path))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(made.files[path[1:]], program) {
					t.Errorf("%s differs from what hack/build.sh builds", path)
				}
			}
			if diff := cmp.Diff(modes, made.modes); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if got := string(made.files["etc/ssl/certs/ca-certificates.crt"]); got != "authorities\n" {
				t.Errorf("certificates = %q, want those of CA_CERTIFICATES", got)
			}

			rootfs := made.extract(t)
			for path := range want.files {
				if out, want := inRoot(t, rootfs, path, "--version"), path[1:]+" version "+version+"\n"; out != want {
					t.Errorf("output = %q, want %q", out, want)
				}
			}
		})
	}
}

// An image that is made on a base has the layers and settings of that, whichever way the base is given.
func TestImageOnABase(t *testing.T) {
	t.Parallel()
	root, dir := "../../..", t.TempDir()
	tool := strings.TrimSpace(execute(t, root, os.Environ(), "hack/tools/build.sh", "image"))
	run := func(args ...string) { t.Helper(); execute(t, dir, os.Environ(), append([]string{tool}, args...)...) }
	for file, content := range map[string]string{"tree/a/file": "1", "tree/program": "2", "more": "3"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tree", "program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/file", filepath.Join(dir, "tree", "link")); err != nil {
		t.Fatal(err)
	}
	run("-output", "base.tar", "-name", "example.com/base:v1", "-platform", "linux/arm64", "-user", "1:1", "-env", "A=1", "-env", "B=1", "-cmd", "x", "tree/=/srv")
	if err := os.Mkdir(filepath.Join(dir, "layout"), 0o700); err != nil {
		t.Fatal(err)
	}
	execute(t, dir, os.Environ(), "tar", "--extract", "--file=base.tar", "--directory=layout")
	onBase := func(output, base string) []byte {
		t.Helper()
		run("-output", output, "-name", "team/image", "-platform", "linux/arm64", "-base", base, "-env", "B=2", "-label", "c=a=b, c",
			"-entrypoint", "/srv/program", "-created", "2023-11-14T22:13:20Z", "more=/srv/a/more")
		content, err := os.ReadFile(filepath.Join(dir, output))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	content := onBase("archive.tar", "base.tar")
	if !bytes.Equal(content, onBase("layout.tar", "layout")) {
		t.Error("the image on the layout differs from the one on the archive")
	}
	made := readImage(t, content)
	if want := "docker.io/team/image:latest"; made.name != want {
		t.Errorf("name for containerd = %s, want %s", made.name, want)
	}
	if diff := cmp.Diff(settings{
		User: "1:1", Env: []string{"A=1", "B=2"}, Entrypoint: []string{"/srv/program"}, Labels: map[string]string{"c": "a=b, c"},
	}, made.config.Config); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"srv/": "drwxr-xr-x", "srv/a/": "drwxr-xr-x", "srv/a/file": "-rw-r--r--", "srv/a/more": "-rw-r--r--", "srv/link": "Lrwxrwxrwx", "srv/program": "-rwxr-xr-x",
	}, made.modes); diff != "" || made.layers != 2 || string(made.files["srv/a/file"])+string(made.files["srv/a/more"]) != "13" {
		t.Errorf("%d layers with other files (-want +got):\n%s", made.layers, diff)
	}
}

// The name of the agent's image follows from the server's, or is set.
func TestAgentImageName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ image, agent, want string }{
		"beside":                       {"ghcr.io/configdep/configdep:v1", "", "ghcr.io/configdep/configdep-agent:v1"},
		"without a tag":                {"example.com/team/server", "", "example.com/team/configdep-agent"},
		"at a port, without a tag":     {"localhost:5000/server", "", "localhost:5000/configdep-agent"},
		"of one word":                  {"server:v1", "", "configdep-agent:v1"},
		"set, with the tag of IMAGE":   {"example.com:5000/server:v1", "other.example:5000/agent", "other.example:5000/agent:v1"},
		"set, with a tag of its own":   {"example.com/server:v1", "other.example/agent:v2", "other.example/agent:v2"},
		"set, and neither has any tag": {"example.com/server", "other.example/agent", "other.example/agent"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.TrimSpace(execute(t, "../../..", append(os.Environ(), "AGENT_IMAGE="+test.agent), "hack/agent-image.sh", test.image)); got != test.want {
				t.Errorf("name = %s, want %s", got, test.want)
			}
		})
	}
}

// imageArchive is what an archive contains.
type imageArchive struct {
	name   string // for containerd
	config struct {
		OS, Architecture, Created string
		Config                    settings
	}
	layers int
	files  map[string][]byte
	modes  map[string]string
}

type settings struct {
	User            string
	Env             []string
	Entrypoint, Cmd []string
	Labels          map[string]string
}

// readImage reads an archive as an OCI layout, and checks that docker would find the same image in it.
func readImage(t *testing.T, archive []byte) *imageArchive {
	t.Helper()
	entries := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
	decode := func(file string, into any) {
		t.Helper()
		if err := json.Unmarshal(entries[file], into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	blob := func(digest string) string {
		t.Helper()
		file := "blobs/" + strings.Replace(digest, ":", "/", 1)
		if sum := sha256.Sum256(entries[file]); "sha256:"+hex.EncodeToString(sum[:]) != digest {
			t.Fatalf("%s has another digest", file)
		}
		return file
	}
	type descriptor struct {
		Digest, MediaType string
		Annotations       map[string]string
	}
	var index struct{ Manifests []descriptor }
	decode("index.json", &index)
	if len(index.Manifests) != 1 || entries["oci-layout"] == nil {
		t.Fatalf("index = %v, want one image", index)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(blob(index.Manifests[0].Digest), &manifest)
	made := &imageArchive{name: index.Manifests[0].Annotations["io.containerd.image.name"], files: map[string][]byte{}, modes: map[string]string{}, layers: len(manifest.Layers)}
	decode(blob(manifest.Config.Digest), &made.config)

	type saved struct {
		Config           string
		RepoTags, Layers []string
	}
	var forDocker []saved
	decode("manifest.json", &forDocker)
	want := saved{Config: blob(manifest.Config.Digest)}
	for _, layer := range manifest.Layers {
		if layer.MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
			t.Errorf("layer = %v, want one of OCI", layer)
		}
		want.Layers = append(want.Layers, blob(layer.Digest))
		made.readLayer(t, entries[blob(layer.Digest)])
	}
	if len(forDocker) == 1 && len(forDocker[0].RepoTags) == 1 {
		forDocker[0].RepoTags = nil // a short name stays one there
	}
	if diff := cmp.Diff([]saved{want}, forDocker); diff != "" {
		t.Errorf("manifest.json (-want +got):\n%s", diff)
	}
	return made
}

func (a *imageArchive) readLayer(t *testing.T, layer []byte) {
	t.Helper()
	content, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s has the owner %d:%d, want root", header.Name, header.Uid, header.Gid)
		}
		a.modes[header.Name] = header.FileInfo().Mode().String()
		if header.Typeflag == tar.TypeReg {
			if a.files[header.Name], err = io.ReadAll(reader); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// extract writes the files of the image into a folder.
func (a *imageArchive) extract(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), a.files[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// inRoot runs a program with a folder as its root, and returns what it prints.
func inRoot(t *testing.T, root string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Getuid() != 0 { // changing the root then needs a user namespace
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}
