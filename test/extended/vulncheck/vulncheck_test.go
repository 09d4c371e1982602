// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package vulncheck tests hack/govulncheck.sh with its own databases: that the script fails if and only if a vulnerable
// function is called, and that it never treats an unreachable database as a success of the check.
package vulncheck

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/modcache"
)

// A small package that creates certificates and calls this function.
const (
	scanned = "./test/pki"
	called  = "CreateCertificate"
)

func TestMain(m *testing.M) {
	if err := install.BuildTools(context.Background(), os.Stderr, "vuln"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestGovulncheck(t *testing.T) {
	t.Parallel()
	// A server that accepts connections and never answers.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // after the parallel tests
	// An address where no server listens.
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	for name, test := range map[string]struct {
		db, mode string
		passes   bool
		says     string
	}{
		"a called function is a finding": {
			db: database(t, called), says: "govulncheck: vulnerabilities are called",
		},
		"a function that is not called is no finding": {
			db: database(t, "CreateRevocationList"), passes: true, says: "govulncheck: no known vulnerability is called",
		},
		"an unreachable database is reported and passes": {
			db: "http://" + closed.Addr().String(), passes: true, says: "govulncheck: NOT CHECKED",
		},
		"an unreachable database fails if it is required": {
			db: "http://" + closed.Addr().String(), mode: "required", says: "govulncheck: it has to be",
		},
		"a folder without a database is an error": {
			db: "file://" + t.TempDir(), says: "holds no vulnerability database",
		},
		"an unknown mode is an error": {
			db: database(t, called), mode: "perhaps", says: "GOVULNCHECK=perhaps is neither",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, "GOVULNDB="+test.db, "GOVULNCHECK="+test.mode)
			if (err == nil) != test.passes || !strings.Contains(out, test.says) {
				t.Errorf("error = %v, output:\n%s", err, out)
			}
		})
	}
	t.Run("the wait for a silent database has a limit", func(t *testing.T) {
		t.Parallel()
		out, err := run(t, "GOVULNDB=http://"+silent.Addr().String(), "GOVULNCHECK=", "PROBE_TIMEOUT=2")
		if err != nil || !strings.Contains(out, "cannot be reached (no answer within 2 seconds)") {
			t.Errorf("error = %v, output:\n%s", err, out)
		}
	})
}

// If the database does not answer, the script uses the module with the same content.
func TestGovulncheck_ByModule(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	const version = "v0.0.0-20260102030405-0123456789ab"
	env := append(modules(t, "golang.org/x/vulndb", version, map[string][]byte{"data/osv/" + id + ".json": vulnerability(t, called)}),
		"GOVULNDB=", "HTTPS_PROXY=http://"+closed.Addr().String(), "NO_PROXY=")
	out, err := run(t, append(env, "GOVULNCHECK=required")...)
	if err == nil || !strings.Contains(out, "govulncheck: vulnerabilities are called") || !strings.Contains(out, "golang.org/x/vulndb@"+version) {
		t.Errorf("error = %v, output:\n%s", err, out)
	}
}

// modules returns the environment of a separate module cache, with a proxy for one additional module.
// The format: https://go.dev/ref/mod#goproxy-protocol
func modules(t *testing.T, path, version string, files map[string][]byte) []string {
	t.Helper()
	dir := t.TempDir()
	var packed bytes.Buffer
	to := zip.NewWriter(&packed)
	files["go.mod"] = []byte("module " + path + "\n")
	for name, content := range files {
		file, err := to.Create(path + "@" + version + "/" + name)
		if err == nil {
			_, err = file.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	info := fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-02T03:04:05Z"}`, version)
	for name, content := range map[string][]byte{
		"@latest": info, "@v/list": nil, "@v/" + version + ".info": info, "@v/" + version + ".mod": files["go.mod"], "@v/" + version + ".zip": packed.Bytes(),
	} {
		write(t, filepath.Join(dir, path, name), content)
	}
	return append(modcache.New(t, "file://"+dir), "GONOSUMDB="+path)
}

func run(t *testing.T, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hack/govulncheck.sh", scanned)
	cmd.Dir, cmd.Env = filepath.Join("..", "..", ".."), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const id, modified = "GO-2026-0001", "2026-01-01T00:00:00Z"

type object = map[string]any

// database creates a database with one vulnerability, in a function of all versions of crypto/x509, and returns its URL.
// The format: https://go.dev/security/vuln/database#api
func database(t *testing.T, function string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"index/db.json":      encode(t, object{"modified": modified}),
		"index/modules.json": encode(t, []object{{"path": "stdlib", "vulns": []object{{"id": id, "modified": modified}}}}),
		"ID/" + id + ".json": vulnerability(t, function),
	} {
		write(t, filepath.Join(dir, name), content)
	}
	return "file://" + dir
}

func vulnerability(t *testing.T, function string) []byte {
	t.Helper()
	return encode(t, object{
		"schema_version": "1.3.1", "id": id, "modified": modified, "published": modified, "summary": "made up",
		"affected": []object{{
			"package":            object{"name": "stdlib", "ecosystem": "Go"},
			"ranges":             []object{{"type": "SEMVER", "events": []object{{"introduced": "0"}}}},
			"ecosystem_specific": object{"imports": []object{{"path": "crypto/x509", "symbols": []string{function}}}},
		}},
		"database_specific": object{"url": "https://pkg.go.dev/vuln/" + id},
	})
}

func encode(t *testing.T, o any) []byte {
	t.Helper()
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
