// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/modcache"
)

const (
	program    = "configdep-apiserver"
	version    = "v0.0.0-test"
	epoch      = "1700000000"
	created    = "2023-11-14T22:13:20Z" // the same
	repository = "registry.example:5000/team/configdep-apiserver"
	// By default, the agent's image is beside the server's.
	agentRepository = "registry.example:5000/team/configdep-agent"
	digest          = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestMain(m *testing.M) {
	if err := install.BuildTools(context.Background(), os.Stderr, "helm", "image", "sbom"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A release for one platform is built twice, inspected, and compared with the image.
func TestRelease(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	suffix := "_" + version + "_" + runtime.GOOS + "_" + runtime.GOARCH
	name := program + suffix
	folder := name + "/"

	dist := filepath.Join(t.TempDir(), "dist")
	key, signers := signingKey(t)
	execute(t, root, append(os.Environ(), "VERSION="+version, "IMAGE="+repository, "IMAGE_DIGEST="+digest, "SOURCE_DATE_EPOCH="+epoch, "PLATFORMS="+platform, "DIST="+dist,
		"SIGNING_KEY="+key, "RELEASE_SIGNERS="+signers), "hack/release.sh")
	made := contents(t, dist)
	archive := unpack(t, made[name+".tar.gz"])

	t.Run("a build in another checkout is identical", func(t *testing.T) {
		// The path has another length, there is no Git repository, the time zone is another, the umask hides files
		// from other users, and the module cache is empty.
		other := filepath.Join(t.TempDir(), "a", "longer", "path", "to", "the", "same", "tree")
		for _, file := range tracked(t, root) {
			copyFile(t, filepath.Join(root, file), filepath.Join(other, file))
		}
		if err := os.Mkdir(filepath.Join(other, ".cache"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, ".cache", "tools"), filepath.Join(other, ".cache", "tools")); err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(other, "dist")
		env := append(os.Environ(), "VERSION="+version, "IMAGE="+repository, "IMAGE_DIGEST="+digest, "SOURCE_DATE_EPOCH="+epoch, "PLATFORMS="+platform, "DIST="+again, "TZ=Asia/Tokyo")
		execute(t, other, append(env, modcache.New(t)...),
			"bash", "-c", "umask 077; exec hack/release.sh")
		remade := contents(t, again)
		remade[signature] = made[signature] // a signature needs the key
		if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(remade))); diff != "" {
			t.Fatalf("files (-first +second):\n%s", diff)
		}
		for name := range made {
			if !bytes.Equal(made[name], remade[name]) {
				t.Errorf("%s differs between the builds", name)
			}
		}
	})
	t.Run("the user's Go settings do not matter", func(t *testing.T) {
		out := t.TempDir()
		execute(t, root, append(os.Environ(), "VERSION="+version, "GOFLAGS=-ldflags=-w -tags=netgo", "GOAMD64=v3", "CGO_ENABLED=1", "GOWORK="+filepath.Join(out, "go.work")),
			"hack/build.sh", out, "./cmd/"+program)
		if built, err := os.ReadFile(filepath.Join(out, program)); err != nil || !bytes.Equal(built, archive[folder+program]) {
			t.Errorf("the program differs from the release (%v)", err)
		}
	})
	t.Run("the checksums cover all files", func(t *testing.T) {
		execute(t, dist, os.Environ(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		if lines := strings.Count(string(made["SHA256SUMS"]), "\n"); lines != len(made)-2 || lines < 4 {
			t.Errorf("SHA256SUMS has %d checksums for %d files", lines, len(made)-2)
		}
	})
	t.Run("the checksums are signed", func(t *testing.T) {
		if err := verify(t, signers, filepath.Join(dist, signature), made["SHA256SUMS"]); err != nil {
			t.Error(err)
		}
		if verify(t, signers, filepath.Join(dist, signature), append(made["SHA256SUMS"], '\n')) == nil {
			t.Error("the signature also verifies a changed file")
		}
	})
	t.Run("the archive contains the program, its license and its README", func(t *testing.T) {
		for file, want := range map[string]string{"LICENSE": "LICENSE", "README.md": "README.md"} {
			content, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(archive[folder+want], content) {
				t.Errorf("%s is missing in the archive or differs; files: %v", want, slices.Sorted(maps.Keys(archive)))
			}
		}
		if len(archive) != 3 || len(archive[folder+program]) == 0 {
			t.Errorf("files in the archive = %v, want the program, LICENSE and README.md", slices.Sorted(maps.Keys(archive)))
		}
	})
	// The cached pages of the program's file count as memory of the container. Code that uses text/template or finds
	// methods by name makes the linker keep every exported method, which adds a third of the limit; see hack/build.sh.
	t.Run("the program is small", func(t *testing.T) {
		if size, most := len(archive[folder+program]), 66<<20; size > most {
			t.Errorf("the program has %d bytes, want at most %d", size, most)
		}
	})
	t.Run("the programs are static and run in an empty root", func(t *testing.T) {
		for _, program := range []string{program, "configdep-agent", "configdep-restarter"} {
			name := program + suffix
			binary := unpack(t, made[name+".tar.gz"])[name+"/"+program]
			file, err := elf.NewFile(bytes.NewReader(binary))
			if err != nil {
				t.Fatal(err)
			}
			for _, segment := range file.Progs {
				if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
					t.Errorf("%s has a segment %s, want none for dynamic linking", program, segment.Type)
				}
			}
			empty := t.TempDir()
			if err := os.WriteFile(filepath.Join(empty, program), binary, 0o700); err != nil {
				t.Fatal(err)
			}
			out, err := inRoot(t, empty, "/"+program, "--version").CombinedOutput()
			if want := program + " version " + version + "\n"; err != nil || string(out) != want {
				t.Errorf("output = %q (%v), want %q", out, err, want)
			}
		}
	})
	t.Run("the SBOM lists the modules of the program", func(t *testing.T) {
		var sbom struct {
			BOMFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct {
				Name, Version string
				Evidence      struct{ Licenses []any }
			}
		}
		if err := json.Unmarshal(made[name+".cdx.json"], &sbom); err != nil {
			t.Fatal(err)
		}
		if sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component.Version != version {
			t.Errorf("the SBOM is a %s for %v, want CycloneDX for the version", sbom.BOMFormat, sbom.Metadata.Component)
		}
		versions := map[string]string{}
		for _, c := range sbom.Components {
			versions[c.Name] = c.Version
			if c.Name != "std" && len(c.Evidence.Licenses) == 0 {
				t.Errorf("the SBOM has no license for %s", c.Name)
			}
		}
		// The SBOM is not generated from go.mod, so this comparison is independent.
		if out := execute(t, root, os.Environ(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/apiserver"); versions["k8s.io/apiserver"] != strings.TrimSpace(out) {
			t.Errorf("version of k8s.io/apiserver = %q, want %s", versions["k8s.io/apiserver"], out)
		}
		if versions["std"] != runtime.Version() {
			t.Errorf("version of the standard library = %q, want %s", versions["std"], runtime.Version())
		}
	})
	t.Run("one file installs the version, with or without what needs Kubernetes 1.36", func(t *testing.T) {
		without := string(made["configdep-install-before-1.36_"+version+".yaml"])
		if !strings.Contains(without, `image: "`+repository+":"+version+"@"+digest+"\"\n") || strings.Contains(without, "kind: MutatingAdmissionPolicy") {
			t.Errorf("want manifests with the image, without a MutatingAdmissionPolicy; got:\n%s", without)
		}
		more, found := strings.CutPrefix(string(made["configdep-install_"+version+".yaml"]), without+"---\n")
		if !found || !strings.Contains(more, "kind: MutatingAdmissionPolicy\n") {
			t.Errorf("want the same manifests and a MutatingAdmissionPolicy; got also:\n%s", more)
		}
	})
	t.Run("krew finds the plugin", func(t *testing.T) {
		plugin := "kubectl-configdep" + suffix
		var manifest struct {
			Spec struct {
				Version   string
				Platforms []struct{ URI, Sha256, Bin string }
			}
		}
		if err := yaml.UnmarshalStrict(made["kubectl-configdep_"+version+".yaml"], &map[string]any{}); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(made["kubectl-configdep_"+version+".yaml"], &manifest); err != nil {
			t.Fatal(err)
		}
		if manifest.Spec.Version != version || len(manifest.Spec.Platforms) != 1 {
			t.Fatalf("manifest = %+v, want one platform of the version", manifest)
		}
		p, sum := manifest.Spec.Platforms[0], fmt.Sprintf("%x", sha256.Sum256(made[plugin+".tar.gz"]))
		if filepath.Base(p.URI) != plugin+".tar.gz" || p.Sha256 != sum || len(unpack(t, made[plugin+".tar.gz"])[plugin+"/"+p.Bin]) == 0 {
			t.Errorf("platform = %+v, want the archive %s with the checksum %s", p, plugin, sum)
		}
	})
	t.Run("the names of the images are recorded", func(t *testing.T) {
		want := "VERSION=" + version + "\nIMAGE=" + repository + "\nAGENT_IMAGE=" + agentRepository + "\nIMAGE_DIGEST=" + digest + "\n"
		if diff := cmp.Diff(want, string(made["configdep-image_"+version+".env"])); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("helm can render the charts", func(t *testing.T) {
		charts := []string{}
		for name := range made {
			if strings.HasSuffix(name, ".tgz") {
				charts = append(charts, filepath.Join(dist, name))
				unpack(t, made[name]) // checks owners
			}
		}
		slices.Sort(charts)
		if len(charts) != 2 {
			t.Fatalf("charts = %v, want those of the server and of the policies", charts)
		}
		policies := execute(t, root, os.Environ(), "hack/helm.sh", "template", "configdep-policies", charts[1])
		for _, text := range []string{policies, string(made["configdep-policies_"+version+".yaml"])} {
			if !strings.Contains(text, "kind: CustomResourceDefinition") || strings.Contains(text, "kind: Deployment") {
				t.Errorf("want the definition of the policies and no server; got:\n%s", text)
			}
		}
		out := execute(t, root, os.Environ(), "hack/helm.sh", "template", "configdep", charts[0], "--namespace", "configdep-system")
		if !strings.Contains(out, "kind: Deployment") || !strings.Contains(out, `image: "`+repository+":unreleased@"+digest+`"`) {
			t.Errorf("want a Deployment and the image; got:\n%s", out)
		}
		packed := string(unpack(t, made[filepath.Base(charts[0])])["configdep/Chart.yaml"])
		for _, want := range []string{"image: " + repository + ":", "image: " + agentRepository + ":"} {
			if !strings.Contains(packed, want) {
				t.Errorf("want %q in Chart.yaml; got:\n%s", want, packed)
			}
		}
	})
}

// inRoot returns a command with a folder as its root, and without an environment.
func inRoot(t *testing.T, root string, command ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Getuid() != 0 { // changing the root then needs a user namespace
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	}
	return cmd
}

// execute runs a command, which must succeed, and returns its standard output.
func execute(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", command, err, out, stderr.Bytes())
	}
	return string(out)
}

// tracked returns the files of the tree, except for those that .gitignore excludes.
func tracked(t *testing.T, root string) (files []string) {
	t.Helper()
	for file := range strings.SplitSeq(execute(t, root, os.Environ(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, file)); file != "" && err == nil {
			files = append(files, file)
		}
	}
	if len(files) < 100 {
		t.Fatalf("git lists only %d files", len(files))
	}
	return files
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// contents returns the files of a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[entry.Name()], err = os.ReadFile(path)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s contains %d files: %v", dir, len(files), err)
	}
	return files
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files, _ := readTar(t, uncompressed(t, archive))
	return files
}

func uncompressed(t *testing.T, archive []byte) io.Reader {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// readTar returns the files of an archive, and the modes of its entries, whose owner must be root.
func readTar(t *testing.T, archive io.Reader) (files map[string][]byte, modes map[string]string) {
	t.Helper()
	files, modes = map[string][]byte{}, map[string]string{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s has the owner %d:%d, want root", header.Name, header.Uid, header.Gid)
		}
		modes[header.Name] = header.FileInfo().Mode().String()
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
