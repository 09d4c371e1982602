// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"}

// fakeGo is go, except that it builds scripts, which print "built" and their name.
const fakeGo = `#!/usr/bin/env bash
[[ $1 == build ]] || exec %q "$@"
while [[ $1 != -o ]]; do shift; done
out=$2; shift 2
for package; do
  name=$(basename "${package%%/v3}")
  printf '#!/bin/sh\necho built $(basename $0)\n' >"$out/$name"
  chmod 755 "$out/$name"
done
`

// builder runs the build script in a folder that has nothing but what it reads, with a compiler that takes no time.
type builder struct {
	dir string
	env []string
}

func newBuilder(t *testing.T, env ...string) *builder {
	t.Helper()
	root, err := RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "hack", "controlplane"), os.DirFS(filepath.Join(root, "hack", "controlplane"))); err != nil {
		t.Fatal(err)
	}
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "path", "go"), fmt.Sprintf(fakeGo, compiler))
	env = append(os.Environ(), append([]string{
		"PATH=" + filepath.Join(dir, "path") + ":" + os.Getenv("PATH"), "KUBEBUILDER_ASSETS=", "CONTROL_PLANE=", "KUBERNETES_VERSION=", "no_proxy=*",
	}, env...)...)
	return &builder{dir: dir, env: env}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run returns what each program of the control plane prints, and what the script writes to standard error.
func (b *builder) run(t *testing.T) (prints map[string]string, messages string, err error) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(b.dir, buildScript))
	cmd.Dir, cmd.Stderr, cmd.Env = b.dir, &stderr, b.env
	out, err := cmd.Output()
	if err != nil {
		return nil, stderr.String(), err
	}
	folder := strings.TrimSpace(string(out))
	prints = map[string]string{}
	for _, name := range programs {
		out, err := exec.CommandContext(t.Context(), filepath.Join(folder, name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		prints[name] = strings.TrimSpace(string(out))
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != len(programs)+1 { // and the mark that it is complete
		t.Errorf("the folder has %v (%v)", entries, err)
	}
	return prints, stderr.String(), nil
}

// site imitates the download sites of Kubernetes and etcd. Its programs print "downloaded" and their name.
type site struct {
	serve func(w http.ResponseWriter, r *http.Request, content []byte) // nil serves the content
}

func (s *site) start(t *testing.T) *builder {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return newBuilder(t, "KUBERNETES_DOWNLOADS="+server.URL, "ETCD_DOWNLOADS="+server.URL)
}

func program(name string) []byte {
	return []byte("#!/bin/sh\necho downloaded " + name + "\n")
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	version := strings.Split(r.URL.Path, "/")[1]
	sum := func(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }
	content := program(name)
	switch checked, found := strings.CutSuffix(name, ".sha256"); {
	case found:
		content = []byte(sum(program(checked)))
	case name == "SHA256SUMS":
		content = nil
		for _, platform := range []string{"darwin-arm64", "linux-amd64", "linux-arm64"} {
			folder := "etcd-" + version + "-" + platform
			content = append(content, sum(archive(folder))+"  "+folder+".tar.gz\n"...)
		}
	case strings.HasSuffix(name, ".tar.gz"):
		content = archive(strings.TrimSuffix(name, ".tar.gz"))
	}
	if s.serve != nil {
		s.serve(w, r, content)
		return
	}
	_, _ = w.Write(content)
}

// archive returns the release of etcd in a folder.
func archive(folder string) []byte {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, name := range []string{"etcdctl", "etcd"} {
		text := program(name)
		_ = files.WriteHeader(&tar.Header{Name: folder + "/" + name, Mode: 0o755, Size: int64(len(text))})
		_, _ = files.Write(text)
	}
	_, _ = files.Close(), zipped.Close()
	return out.Bytes()
}

// want tells how each program comes: all but kwok in the same way.
func want(t *testing.T, prints map[string]string, how string) {
	t.Helper()
	for _, name := range programs {
		want := how + " " + name
		if name == "kwok" && how == "downloaded" {
			want = "built kwok"
		}
		if prints[name] != want {
			t.Errorf("%s prints %q, want %q", name, prints[name], want)
		}
	}
}

// Official binaries are used if they have the published checksums, also if they come slowly. The second run has them.
func TestBuild_Downloads(t *testing.T) {
	t.Parallel()
	slow := &site{serve: func(w http.ResponseWriter, _ *http.Request, content []byte) {
		for i := range content {
			_, _ = w.Write(content[i : i+1])
			w.(http.Flusher).Flush()
		}
	}}
	for name, s := range map[string]*site{"at once": {}, "byte by byte": slow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := s.start(t)
			prints, messages, err := b.run(t)
			if err != nil {
				t.Fatalf("%v:\n%s", err, messages)
			}
			want(t, prints, "downloaded")
			if again, messages, err := b.run(t); err != nil || messages != "" || again["etcd"] != "downloaded etcd" {
				t.Errorf("the second run: %v, %v, with the messages\n%s", again, err, messages)
			}
		})
	}
}

// Another version has another folder.
func TestBuild_AnotherKubernetes(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	b := (&site{serve: func(w http.ResponseWriter, r *http.Request, content []byte) {
		if strings.HasPrefix(r.URL.Path, "/v1.34.4/bin/") {
			asked.Add(1)
		}
		_, _ = w.Write(content)
	}}).start(t)
	if _, messages, err := b.run(t); err != nil || asked.Load() != 0 {
		t.Fatalf("%d requests for v1.34.4 (%v):\n%s", asked.Load(), err, messages)
	}
	b.env = append(b.env, "KUBERNETES_VERSION=v1.34.4")
	prints, messages, err := b.run(t)
	if err != nil || asked.Load() != 8 {
		t.Errorf("%d requests for v1.34.4, want one for each file and its checksum (%v):\n%s", asked.Load(), err, messages)
	}
	want(t, prints, "downloaded")
}

// Where downloads are impossible, everything is built, and the reason is said.
func TestBuild_BuildsWhatCannotBeDownloaded(t *testing.T) {
	t.Parallel()
	binary := func(r *http.Request) bool { return !strings.Contains(strings.ToLower(path.Base(r.URL.Path)), "sha256") }
	for name, tc := range map[string]struct {
		serve   func(w http.ResponseWriter, r *http.Request, content []byte)
		message string
	}{
		"not found": {
			serve:   func(w http.ResponseWriter, r *http.Request, _ []byte) { http.NotFound(w, r) },
			message: "404",
		},
		"no answer": {
			serve:   func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() },
			message: "timed out",
		},
		"binaries not found": {
			serve: func(w http.ResponseWriter, r *http.Request, content []byte) {
				if binary(r) {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write(content)
			},
			message: "404",
		},
		"cut off": {
			serve: func(w http.ResponseWriter, r *http.Request, content []byte) {
				if !binary(r) {
					_, _ = w.Write(content)
					return
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = w.Write(content[:len(content)/2])
			},
			message: "remaining",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prints, messages, err := (&site{serve: tc.serve}).start(t).run(t)
			if err != nil {
				t.Fatalf("%v:\n%s", err, messages)
			}
			want(t, prints, "built")
			if strings.Count(messages, "because it could not be downloaded") != 2 || !strings.Contains(messages, tc.message) {
				t.Errorf("the messages do not say %q:\n%s", tc.message, messages)
			}
		})
	}
}

// What cannot be unpacked, as on a full disk, is not taken for something that is there.
func TestBuild_BuildsWhatCannotBeUnpacked(t *testing.T) {
	t.Parallel()
	b := (&site{}).start(t)
	write(t, filepath.Join(b.dir, "path", "tar"), "#!/bin/sh\nexit 2\n")
	prints, messages, err := b.run(t)
	if err != nil {
		t.Fatalf("%v:\n%s", err, messages)
	}
	if prints["etcd"] != "built etcd" || prints["kubectl"] != "downloaded kubectl" {
		t.Errorf("%v:\n%s", prints, messages)
	}
}

// A closed port answers at once; the limit of five seconds is that of curl.
func TestBuild_WithoutConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	url := "http://" + listener.Addr().String()
	prints, messages, err := newBuilder(t, "KUBERNETES_DOWNLOADS="+url, "ETCD_DOWNLOADS="+url).run(t)
	if err != nil || strings.Count(messages, "because it could not be downloaded") != 2 {
		t.Fatalf("%v:\n%s", err, messages)
	}
	want(t, prints, "built")
}

// A file without the published checksum is never used, and never replaced without a word.
func TestBuild_RefusesAWrongChecksum(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kube-scheduler", "SHA256SUMS"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{serve: func(w http.ResponseWriter, r *http.Request, content []byte) {
				if path.Base(r.URL.Path) == name {
					content = bytes.ReplaceAll(content, []byte("downloaded"), []byte("manipulated"))
					content = regexp.MustCompile(`.  etcd-`).ReplaceAll(content, []byte("x  etcd-"))
				}
				_, _ = w.Write(content)
			}}
			if prints, messages, err := s.start(t).run(t); err == nil || !strings.Contains(messages, "control plane: the checksum of ") {
				t.Errorf("it provides %v (%v):\n%s", prints, err, messages)
			}
		})
	}
}

// CONTROL_PLANE=build sends no request.
func TestBuild_ForcesBuilding(t *testing.T) {
	t.Parallel()
	b := (&site{serve: func(_ http.ResponseWriter, r *http.Request, _ []byte) { t.Errorf("%s was asked for", r.URL) }}).start(t)
	b.env = append(b.env, "CONTROL_PLANE=build")
	prints, messages, err := b.run(t)
	if err != nil {
		t.Fatalf("%v:\n%s", err, messages)
	}
	want(t, prints, "built")
	b.env = append(b.env, "CONTROL_PLANE=download")
	if _, messages, err := b.run(t); err == nil || !strings.Contains(messages, "CONTROL_PLANE=download: must be build, or empty") {
		t.Errorf("%v:\n%s", err, messages)
	}
}

// Binaries that exist already are used, wherever the script is called. Others are built.
func TestBuild_UsesKubebuilderAssets(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, "KUBEBUILDER_ASSETS=bin", "CONTROL_PLANE=build")
	for _, name := range []string{"etcd", "kubectl", "kube-apiserver"} {
		write(t, filepath.Join(b.dir, "bin", name), "#!/bin/sh\necho given "+name+"\n")
	}
	prints, messages, err := b.run(t)
	if err != nil {
		t.Fatalf("%v:\n%s", err, messages)
	}
	for name, how := range map[string]string{"etcd": "given", "kubectl": "given", "kube-apiserver": "given", "kube-scheduler": "built", "kwok": "built"} {
		if prints[name] != how+" "+name {
			t.Errorf("%s prints %q, want %s", name, prints[name], how)
		}
	}
	if err := os.Remove(filepath.Join(b.dir, "bin", "etcd")); err != nil { // and so no longer complete
		t.Fatal(err)
	}
	if prints, messages, err := b.run(t); err != nil || prints["etcd"] != "built etcd" || prints["kubectl"] != "given kubectl" {
		t.Errorf("%v, %v:\n%s", prints, err, messages)
	}
	write(t, filepath.Join(b.dir, "other", "etcd", "file"), "")
	b.env = append(b.env, "KUBEBUILDER_ASSETS=other")
	if _, messages, err := b.run(t); err == nil || !strings.Contains(messages, "other/etcd is no executable file") {
		t.Errorf("%v:\n%s", err, messages)
	}
	b.env = append(b.env, "KUBEBUILDER_ASSETS=nowhere")
	if _, messages, err := b.run(t); err == nil || !strings.Contains(messages, "KUBEBUILDER_ASSETS is not a folder: nowhere") {
		t.Errorf("%v:\n%s", err, messages)
	}
}
