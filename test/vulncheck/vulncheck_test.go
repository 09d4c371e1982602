// Package vulncheck tests hack/govulncheck.sh with databases of its own: that it fails on
// what is called and on nothing else, and that it never takes silence for good news.
package vulncheck

import (
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
)

// A small package that makes certificates, and cannot do so without this function.
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
	// A server listens there and never answers.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // after the parallel tests
	// Nothing listens there any longer.
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
		"a function that is called is a finding": {
			db: database(t, called), says: "govulncheck: vulnerabilities are called",
		},
		"one that is not called is none": {
			db: database(t, "CreateRevocationList"), passes: true, says: "govulncheck: no known vulnerability is called",
		},
		"a database that is not there is told, and passes": {
			db: "http://" + closed.Addr().String(), passes: true, says: "govulncheck: NOT CHECKED",
		},
		"it does not pass where it is required": {
			db: "http://" + closed.Addr().String(), mode: "required", says: "govulncheck: it has to be",
		},
		"a folder that holds no database is a mistake": {
			db: "file://" + t.TempDir(), says: "holds no vulnerability database",
		},
		"a mode that is none is a mistake": {
			db: database(t, called), mode: "perhaps", says: "GOVULNCHECK=perhaps is neither",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, "GOVULNDB="+test.db, "GOVULNCHECK="+test.mode)
			if (err == nil) != test.passes || !strings.Contains(out, test.says) {
				t.Errorf("it ended with %v, and said:\n%s", err, out)
			}
		})
	}
	t.Run("a database that does not answer is waited for no longer than told", func(t *testing.T) {
		t.Parallel()
		out, err := run(t, "GOVULNDB=http://"+silent.Addr().String(), "GOVULNCHECK=", "PROBE_TIMEOUT=2")
		if err != nil || !strings.Contains(out, "cannot be reached (no answer within 2 seconds)") {
			t.Errorf("it ended with %v, and said:\n%s", err, out)
		}
	})
}

func run(t *testing.T, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hack/govulncheck.sh", scanned)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// database makes one that knows of one vulnerability, in a function of crypto/x509 of any
// version, and returns its URL. The format: https://go.dev/security/vuln/database#api
func database(t *testing.T, function string) string {
	t.Helper()
	const id, modified = "GO-2026-0001", "2026-01-01T00:00:00Z"
	type object = map[string]any
	dir := t.TempDir()
	for name, content := range map[string]any{
		"index/db.json":      object{"modified": modified},
		"index/modules.json": []object{{"path": "stdlib", "vulns": []object{{"id": id, "modified": modified}}}},
		"ID/" + id + ".json": object{
			"schema_version": "1.3.1", "id": id, "modified": modified, "published": modified, "summary": "made up",
			"affected": []object{{
				"package":            object{"name": "stdlib", "ecosystem": "Go"},
				"ranges":             []object{{"type": "SEMVER", "events": []object{{"introduced": "0"}}}},
				"ecosystem_specific": object{"imports": []object{{"path": "crypto/x509", "symbols": []string{function}}}},
			}},
			"database_specific": object{"url": "https://pkg.go.dev/vuln/" + id},
		},
	} {
		encoded, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, encoded, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}
