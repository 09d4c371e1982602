// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The archives that are made without docker are reproducible, say the same as the Dockerfile, and contain the programs of
// a release.
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

	stages := dockerfile(t, root)
	programs := t.TempDir()
	execute(t, root, append(os.Environ(), "VERSION="+version, "GOOS=linux"), "hack/build.sh", programs,
		"./cmd/configdep-apiserver", "./cmd/configdep-agent", "./cmd/configdep-restarter", "./cmd/kubectl-configdep")
	for stage, test := range map[string]struct{ name, repository string }{
		"server": {"configdep-apiserver", repository},
		"agent":  {"configdep-agent", agentRepository},
		"plugin": {"kubectl-configdep", "registry.example:5000/team/kubectl-configdep"},
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
			entries, _ := readTar(t, bytes.NewReader(content))
			var manifest []struct {
				Config           string
				RepoTags, Layers []string
			}
			if err := json.Unmarshal(entries["manifest.json"], &manifest); err != nil {
				t.Fatal(err)
			}
			if len(manifest) != 1 || len(manifest[0].Layers) != 1 {
				t.Fatalf("manifest = %v, want one image with one layer", manifest)
			}
			type config struct {
				User            string
				Entrypoint, Cmd []string
				Labels          map[string]string
			}
			var got struct {
				OS, Architecture, Created string
				Config                    config
			}
			if err := json.Unmarshal(entries[manifest[0].Config], &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.repository + ":" + version}, manifest[0].RepoTags); diff != "" {
				t.Errorf("name (-want +got):\n%s", diff)
			}
			if got.OS != "linux" || got.Architecture != runtime.GOARCH || got.Created != created {
				t.Errorf("config = %+v, want the platform and the time", got)
			}

			text := stages["common"] + stages[stage]
			modes := map[string]string{
				"etc/": "drwxr-xr-x", "etc/group": "-rw-r--r--", "etc/nsswitch.conf": "-rw-r--r--", "etc/passwd": "-rw-r--r--", "etc/ssl/": "drwxr-xr-x",
				"etc/ssl/certs/": "drwxr-xr-x", "etc/ssl/certs/ca-certificates.crt": "-rw-r--r--", "tmp/": "dtrwxrwxrwx",
			}
			want := config{User: one(t, text, `(?m)^USER (.*)$`), Entrypoint: []string{one(t, text, `(?m)^ENTRYPOINT \["(.*)"\]$`)}, Labels: map[string]string{}}
			values := strings.NewReplacer("${VERSION}", version, "${CREATED}", created,
				"${REVISION}", strings.TrimSpace(execute(t, root, os.Environ(), "git", "rev-parse", "HEAD")))
			for _, label := range regexp.MustCompile(`([a-z.]+)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
				want.Labels[label[1]] = values.Replace(label[2])
			}
			delete(want.Labels, "org.opencontainers.image.base.name") // it has no base image
			if diff := cmp.Diff(want, got.Config); diff != "" {
				t.Errorf("config (-Dockerfile +archive):\n%s", diff)
			}

			files, made := readTar(t, uncompressed(t, entries[manifest[0].Layers[0]]))
			for path := range strings.FieldsSeq(one(t, text, `(?m)^COPY --from=build (.*) /$`)) {
				program := filepath.Base(path)
				modes[program] = "-rwxr-xr-x"
				if built, err := os.ReadFile(filepath.Join(programs, program)); err != nil || !bytes.Equal(files[program], built) {
					t.Errorf("%s differs from what hack/build.sh builds (%v)", program, err)
				}
			}
			if diff := cmp.Diff(modes, made); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if got := string(files["etc/ssl/certs/ca-certificates.crt"]); got != "authorities\n" {
				t.Errorf("certificates = %q, want those of CA_CERTIFICATES", got)
			}
			if stage == "plugin" {
				testInPod(t, files, got.Config.User, got.Config.Entrypoint[0])
			}
		})
	}
	// The images are built with the Go that they bring (GOTOOLCHAIN=local).
	t.Run("the Dockerfile has a Go that can build the module", func(t *testing.T) {
		needed := execute(t, root, os.Environ(), "go", "list", "-m", "-f", "{{.GoVersion}}")
		brought := one(t, stages[""], `(?m)^ARG GO_VERSION=(.*)$`)
		if oldest := execute(t, root, os.Environ(), "bash", "-c", `printf '%s\n' "$@" | sort -V | head -n 1`, "-", strings.TrimSpace(needed), brought); oldest != needed {
			t.Errorf("the images are built with Go %s, want at least %s", brought, needed)
		}
	})
}

// testInPod runs the plugin as in a pod: with nothing but the files of its image, its user, and what a ServiceAccount brings.
func testInPod(t *testing.T, files map[string][]byte, user, entrypoint string) {
	t.Helper()
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization")+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/api/v1/") {
			fmt.Fprint(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "db", "resourceVersion": "5"}}`)
			return
		}
		fmt.Fprint(w, `{"apiVersion": "configdep.io/v1alpha1", "kind": "ConfigDependencyList", "items": [{"metadata": {"namespace": "shop", "name": "deployment.web"},
			"spec": {"workloadRef": {"kind": "Deployment", "name": "web"}}, "status": {"state": "InSync", "reason": "ContentApplied", "pods": {"current": 2, "total": 2},
			"conditions": [{"type": "InSync", "status": "True"}]}}]}`)
	}))
	defer server.Close()
	const account = "var/run/secrets/kubernetes.io/serviceaccount/"
	files[account+"ca.crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	files[account+"token"], files[account+"namespace"] = []byte("token-of-the-account"), []byte("shop")
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cmd := inRoot(t, root, entrypoint, "wait", "--after", "secret/db")
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	if os.Getuid() == 0 {
		as := &syscall.Credential{}
		if _, err := fmt.Sscanf(user, "%d:%d", &as.Uid, &as.Gid); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = as
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "deployment/web: InSync (ContentApplied), 2 of 2 pods are current") {
		t.Errorf("in a pod: %v\n%s", err, out)
	}
	want := []string{"Bearer token-of-the-account /api/v1/namespaces/shop/secrets/db", "Bearer token-of-the-account /apis/configdep.io/v1alpha1/namespaces/shop/configdependencies"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("in a pod, the API server was asked (-want +got):\n%s", diff)
	}
}

// dockerfile returns the text of each stage of the Dockerfile by its name; "" is what is before the first.
func dockerfile(t *testing.T, root string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]string{}
	for i, text := range strings.Split(string(content), "\nFROM ") {
		name := ""
		if i > 0 {
			name = one(t, text, `^.* AS (\S+)\n`)
		}
		stages[name] = text
	}
	return stages
}

// one returns what a pattern finds in a text, which must be one string.
func one(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("found %q in the Dockerfile, want one string for %s", found, pattern)
	}
	return found[0][1]
}
