// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pkg has no code; its test holds the order of the packages below it.
package pkg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/configdep/configdep/"

// everything lets a package import all others below pkg.
const everything = "*"

// forTests is the one package outside of pkg that tests of packages may import.
const forTests = "test/seeds"

// mayImport names, for each package of ours or folder of packages, which others of ours
// it may import. The longest name that fits a package counts. If you add a package,
// decide where it belongs.
var mayImport = map[string][]string{
	// At the ground.
	"pkg/apis":       {"pkg/apis"},
	"pkg/dependency": {},
	"pkg/version":    {},
	"pkg/metrics":    {},
	"pkg/logging":    {},
	"pkg/jsonpatch":  {},
	"pkg/fields":     {},
	"pkg/follow":     {},
	"pkg/listener":   {}, // ports for clients that are not authenticated
	// What all replicas share, and what they make of it.
	"pkg/sharedsecret": {"pkg/follow"},
	"pkg/certificate":  {"pkg/sharedsecret", "pkg/follow", "pkg/jsonpatch"},
	// What the clients and the API server of our types are made of.
	"pkg/generated": {"pkg/apis", "pkg/generated"},
	// The pure core: what is written, what users ask for, what the pods run with, and what follows from that.
	"pkg/record":   {"pkg/dependency", "pkg/fields", "pkg/jsonpatch", "pkg/agent/status"},
	"pkg/policy":   {"pkg/dependency", "pkg/record", "pkg/fields", "pkg/window"},
	"pkg/window":   {},
	"pkg/limit":    {"pkg/apis/policy/v1alpha1", "pkg/dependency", "pkg/window"},
	"pkg/wave":     {"pkg/apis/policy/v1alpha1", "pkg/dependency", "pkg/limit"},
	"pkg/judge":    {"pkg/dependency"},
	"pkg/decide":   {"pkg/dependency", "pkg/judge", "pkg/record", "pkg/policy", "pkg/fields", "pkg/agent/status", "pkg/limit", "pkg/wave"},
	"pkg/kind":     {"pkg/dependency", "pkg/agent/status"},
	"pkg/plan":     {"pkg/dependency", "pkg/decide", "pkg/wave"},
	"pkg/render":   {"pkg/apis", "pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/kind"},
	"pkg/ingest":   {"pkg/apis/policy/v1alpha1", "pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/fields", "pkg/kind", "pkg/follow", "pkg/sharedsecret", "pkg/agent/status", "pkg/limit"},
	"pkg/workload": {"pkg/dependency", "pkg/policy", "pkg/record", "pkg/kind"},
	"pkg/strategy": {"pkg/dependency", "pkg/judge", "pkg/policy", "pkg/record", "pkg/decide", "pkg/fields", "pkg/kind", "pkg/jsonpatch", "pkg/workload"},
	"pkg/notify":   {"pkg/dependency", "pkg/record", "pkg/kind", "pkg/metrics"},
	// A sink of its own, with its HTTP.
	"pkg/notify/webhook": {"pkg/dependency", "pkg/metrics", "pkg/notify"},
	// Where it sends to, from a file and the environment.
	"pkg/notify/destination": {"pkg/notify", "pkg/notify/webhook"},
	// For tests alone; see testPackages.
	"pkg/dependency/dependencytest": {"pkg/dependency"},
	"pkg/ingest/ingesttest":         {"pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/kind", "pkg/ingest"},
	"pkg/workload/workloadtest":     {"pkg/dependency", "pkg/policy", "pkg/kind", "pkg/workload"},
	// These do not know each other. What they share is below them.
	"pkg/registry": {"pkg/apis", "pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/kind", "pkg/workload", "pkg/strategy", "pkg/judge", "pkg/notify", "pkg/render", "pkg/wave", "pkg/plan", "pkg/registry/view", "pkg/registry/response"},
	// They serve objects of any type.
	"pkg/registry/watchcache": {},
	"pkg/registry/response":   {},
	"pkg/registry/view":       {"pkg/dependency", "pkg/decide", "pkg/registry/watchcache", "pkg/registry/response"},
	"pkg/controller":          {"pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/workload", "pkg/strategy", "pkg/metrics", "pkg/notify", "pkg/limit", "pkg/wave"},
	// On top.
	"pkg/apiserver": {everything},
	// What is made of the handlers of the generic API server.
	"pkg/apiserver/filters": {},
	// Ports of their own, for clients that are not authenticated.
	"pkg/apiserver/plainhttp": {"pkg/listener"},
	// Flags, and what they may be. Nothing that runs.
	"pkg/apiserver/options": {"pkg/agent/status", "pkg/dependency", "pkg/policy", "pkg/record", "pkg/kind", "pkg/ingest", "pkg/certificate", "pkg/notify/destination", "pkg/notify/webhook"},
	// The agent, which knows nothing of the server.
	"pkg/agent":           {"pkg/agent/action", "pkg/agent/fileset", "pkg/agent/process", "pkg/agent/source"},
	"pkg/agent/fileset":   {},
	"pkg/agent/process":   {},
	"pkg/agent/action":    {"pkg/agent/process"},
	"pkg/agent/notify":    {},
	"pkg/agent/source":    {"pkg/agent/fileset", "pkg/agent/notify"},
	"pkg/agent/status":    {}, // which the server reads
	"pkg/agent/endpoints": {"pkg/agent", "pkg/agent/source", "pkg/agent/status"},
	"pkg/agent/report":    {"pkg/agent", "pkg/agent/source", "pkg/agent/status"},
	"pkg/agent/restarter": {"pkg/agent/action", "pkg/agent/notify"},
	"pkg/agent/options":   {"pkg/agent", "pkg/agent/action", "pkg/agent/fileset", "pkg/agent/process", "pkg/agent/report", "pkg/agent/source", "pkg/agent/status"},
	// The plugin of kubectl, which knows nothing of the server but the pure core, and how it reads a cluster.
	"pkg/plugin":        {"pkg/apis", "pkg/generated", "pkg/dependency", "pkg/policy", "pkg/record", "pkg/decide", "pkg/kind", "pkg/ingest", "pkg/render", "pkg/version", "pkg/plugin/values"},
	"pkg/plugin/values": {"pkg/apiserver/options"}, // of which a test looks for the flags
	// Each command has a rule of its own, so that none drags in what it does not need.
	"cmd/configdep-apiserver": {"pkg/apiserver"},
	"cmd/configdep-agent":     {"pkg/agent", "pkg/listener", "pkg/version"},
	"cmd/kubectl-configdep":   {"pkg/plugin"},
	"cmd/configdep-restarter": {"pkg/agent/restarter", "pkg/listener", "pkg/version"},
}

// testPackages are those that only tests may import, and each other.
var testPackages = []string{"pkg/dependency/dependencytest", "pkg/ingest/ingesttest", "pkg/workload/workloadtest"}

// mustNotNeed names modules that packages must not need, not even by way of others: the
// core knows no client, and our types can be vendored.
var mustNotNeed = map[string][]string{
	"pkg/apis":        {"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/api"},
	"pkg/dependency":  {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/record":      {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/policy":      {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/decide":      {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/kind":        {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/judge":       {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/render":      {"k8s.io/client-go", "k8s.io/apiserver"},
	"pkg/plugin":      {"k8s.io/apiserver"},
	"pkg/ingest":      {"k8s.io/apiserver"},
	"pkg/strategy":    {"k8s.io/apiserver"},
	"pkg/controller":  {"k8s.io/apiserver"},
	"pkg/certificate": {"k8s.io/apiserver"},
	// These would double what the agent needs in memory.
	"pkg/agent": {"k8s.io/apiserver", "k8s.io/component-base", "k8s.io/api", "k8s.io/client-go/rest", "k8s.io/apimachinery/pkg/apis/meta/v1", "github.com/prometheus/client_golang"},
}

// goPackage is the part of what "go list -json" tells that counts here.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

func TestImportsPointOneWay(t *testing.T) {
	packages := listPackages(t)
	for _, v := range violations(packages) {
		t.Error(v)
	}
	// So that this test cannot pass for want of looking:
	for _, want := range []string{
		"pkg/apis/configdep/v1alpha1", "pkg/dependency", "pkg/record", "pkg/policy", "pkg/judge", "pkg/decide", "pkg/kind", "pkg/ingest", "pkg/workload", "pkg/strategy", "pkg/notify", "pkg/metrics", "pkg/certificate",
		"pkg/registry/view", "pkg/registry/configdependency", "pkg/registry/pods", "pkg/registry/reload", "pkg/controller", "pkg/apiserver", "cmd/configdep-apiserver", "pkg/agent", "cmd/configdep-agent",
	} {
		i := slices.IndexFunc(packages, func(p goPackage) bool { return p.ImportPath == module+want })
		if i < 0 || len(packages[i].Imports) == 0 || len(packages[i].Deps) == 0 {
			t.Errorf("nothing was seen of %s", want)
		}
	}
}

func listPackages(t *testing.T) (packages []goPackage) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./pkg/...", "./cmd/...")
	cmd.Dir, cmd.Stderr = "..", &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// violations tells which imports point the wrong way.
func violations(packages []goPackage) (out []string) {
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			ours, found := strings.CutPrefix(imported, module)
			if !found || within(ours, "pkg") || ours == forTests && !slices.Contains(p.Imports, imported) {
				continue
			}
			out = append(out, fmt.Sprintf("%s imports %s, which is not below pkg", name, ours))
		}
		rule, found := longest(mayImport, name)
		if !found {
			if name != "pkg" {
				out = append(out, fmt.Sprintf("%s has no place in mayImport: which packages of ours may it import?", name))
			}
			continue
		}
		for _, imported := range p.Imports {
			ours, found := strings.CutPrefix(imported, module)
			if slices.Contains(testPackages, ours) && !slices.Contains(testPackages, name) {
				out = append(out, fmt.Sprintf("%s imports %s, which is for tests alone", name, ours))
				continue
			}
			if !found || slices.Contains(rule, everything) {
				continue
			}
			if !slices.ContainsFunc(rule, func(allowed string) bool { return within(ours, allowed) }) {
				out = append(out, fmt.Sprintf("%s imports %s; it may import %q", name, ours, rule))
			}
		}
		forbidden, _ := longest(mustNotNeed, name)
		for _, needed := range p.Deps {
			if slices.ContainsFunc(forbidden, func(f string) bool { return within(needed, f) }) {
				out = append(out, fmt.Sprintf("%s needs %s", name, needed))
			}
		}
	}
	return out
}

// longest returns the value of the longest key that a package is within.
func longest(rules map[string][]string, name string) (rule []string, found bool) {
	best := ""
	for folder, r := range rules {
		if within(name, folder) && len(folder) > len(best) {
			best, rule, found = folder, r, true
		}
	}
	return rule, found
}

func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// The graph knows no annotation by its name: which ones count is asked of the dialects, or another tool's would be filtered out
// before its dialect sees them.
func TestDependencyNamesNoAnnotation(t *testing.T) {
	files, err := filepath.Glob("dependency/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if annotation := regexp.MustCompile(`"[a-z][a-z.-]*\.[a-z]+/[a-zA-Z.-]*"`).FindString(withoutImports(string(text))); annotation != "" {
			t.Errorf("%s names the annotation %s", file, annotation)
		}
	}
}

// withoutImports returns what follows the imports of a Go file.
func withoutImports(text string) string {
	_, after, found := strings.Cut(text, "\nimport (\n")
	if !found {
		return text
	}
	_, after, _ = strings.Cut(after, "\n)\n")
	return after
}

func TestViolationsAreFound(t *testing.T) {
	importing := func(name string, imports ...string) goPackage {
		p := goPackage{ImportPath: module + name, Imports: []string{"fmt", "k8s.io/api/core/v1"}}
		for _, i := range imports {
			p.Imports = append(p.Imports, module+i)
		}
		return p
	}
	const registry = `["pkg/apis" "pkg/dependency" "pkg/policy" "pkg/record" "pkg/decide" "pkg/kind" "pkg/workload" "pkg/strategy" "pkg/judge" "pkg/notify" "pkg/render" "pkg/wave" "pkg/plan" "pkg/registry/view" "pkg/registry/response"]`
	tests := map[string]struct {
		pkg  goPackage
		want []string
	}{
		"one that may":                         {importing("pkg/registry/reload", "pkg/policy", "pkg/registry/view"), nil},
		"the server":                           {importing("cmd/configdep-apiserver", "pkg/apiserver"), nil},
		"the server knows the top":             {importing("cmd/configdep-apiserver", "pkg/ingest"), []string{`cmd/configdep-apiserver imports pkg/ingest; it may import ["pkg/apiserver"]`}},
		"a command without a rule":             {importing("cmd/x", "pkg/apiserver"), []string{"cmd/x has no place in mayImport: which packages of ours may it import?"}},
		"the ground imports upwards":           {importing("pkg/dependency", "pkg/policy"), []string{`pkg/dependency imports pkg/policy; it may import []`}},
		"a name that begins alike":             {importing("pkg/policy", "pkg/dependencyx"), []string{`pkg/policy imports pkg/dependencyx; it may import ["pkg/dependency" "pkg/record" "pkg/fields" "pkg/window"]`}},
		"two that do not know others":          {importing("pkg/controller", "pkg/registry/reload"), []string{`pkg/controller imports pkg/registry/reload; it may import ["pkg/dependency" "pkg/policy" "pkg/record" "pkg/decide" "pkg/workload" "pkg/strategy" "pkg/metrics" "pkg/notify" "pkg/limit" "pkg/wave"]`}},
		"nor the other way round":              {importing("pkg/registry/reload", "pkg/controller"), []string{`pkg/registry/reload imports pkg/controller; it may import ` + registry}},
		"registry imports another":             {importing("pkg/registry/configdependency", "pkg/registry/reload"), []string{`pkg/registry/configdependency imports pkg/registry/reload; it may import ` + registry}},
		"a package without a place":            {importing("pkg/utils"), []string{"pkg/utils has no place in mayImport: which packages of ours may it import?"}},
		"a test that imports tests":            {goPackage{ImportPath: module + "pkg/apiserver", XTestImports: []string{module + "test/pki"}}, []string{"pkg/apiserver imports test/pki, which is not below pkg"}},
		"a test with seeds":                    {goPackage{ImportPath: module + "pkg/policy", Imports: []string{"fmt"}, TestImports: []string{module + "test/seeds"}}, nil},
		"seeds without a test":                 {importing("pkg/policy", "test/seeds"), []string{"pkg/policy imports test/seeds, which is not below pkg", "pkg/policy imports test/seeds; it may import [\"pkg/dependency\" \"pkg/record\" \"pkg/fields\" \"pkg/window\"]"}},
		"a cluster for tests, in tests":        {goPackage{ImportPath: module + "pkg/policy", XTestImports: []string{module + "pkg/ingest/ingesttest"}}, nil},
		"a cluster for tests, in the server":   {importing("pkg/apiserver", "pkg/ingest/ingesttest"), []string{"pkg/apiserver imports pkg/ingest/ingesttest, which is for tests alone"}},
		"a cluster for tests, where it stands": {importing("pkg/ingest", "pkg/ingest/ingesttest"), []string{"pkg/ingest imports pkg/ingest/ingesttest, which is for tests alone"}},
		"a client below":                       {goPackage{ImportPath: module + "pkg/policy", Deps: []string{"k8s.io/client-go/rest"}}, []string{"pkg/policy needs k8s.io/client-go/rest"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, violations([]goPackage{tt.pkg})); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
