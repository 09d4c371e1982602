// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"
)

// The notes of the chart warn about insecure values, and have no warning for the default values.
func TestNotesWarn(t *testing.T) {
	for set, want := range map[string]string{
		"replicas=1":                 "WARNING: with fewer than two replicas",
		"networkPolicy.enabled=true": "WARNING: networkPolicy.from is empty",
		"networkPolicy.enabled=true,networkPolicy.from[0].ipBlock.cidr=10.0.0.0/28":                              "",
		"monitoring.insecurePort=9090":                                                                           "WARNING: with monitoring.insecurePort=9090, every client that can reach that port",
		"monitoring.insecurePort=9090,networkPolicy.enabled=true,networkPolicy.from[0].ipBlock.cidr=10.0.0.0/28": "",
		"pprof.enabled=true":                               "",
		"pprof.enabled=true,pprof.address=:6060":           "WARNING: with pprof.address=:6060, every client that can reach that port",
		"admissionPolicies.enabled=false":                  "WARNING: with admissionPolicies.enabled=false",
		"admissionPolicies.validationActions={Audit}":      `WARNING: admissionPolicies.validationActions is ["Audit"]`,
		"admissionPolicies.validationActions={Deny,Audit}": "",
	} {
		t.Run(set, func(t *testing.T) {
			notes := notes(t, set)
			if warnings := strings.Count(notes, "WARNING:"); warnings > 1 || warnings == 1 != (want != "") || !strings.Contains(notes, want) {
				t.Errorf("notes =\n%s\nwant exactly the warning %q", notes, want)
			}
		})
	}
}

// The notes of the chart say, and say first, if no workload is restarted. They never contain the URL of a webhook.
func TestNotesSayWhatIsRestarted(t *testing.T) {
	const (
		optIn    = "No workload is restarted automatically until it or its namespace opts in:"
		observes = "NO WORKLOAD IS RESTARTED, because reload.observe is set: nothing is written to workloads"
		posts    = "NO WORKLOAD IS RESTARTED, because reload.webhookURL is set: a change that would restart a workload is posted"
	)
	for name, test := range map[string]struct {
		set  string
		want string
	}{
		"workloads that opt in":                   {"reload.observe=false", optIn},
		"none, if it only observes":               {"reload.observe=true", observes},
		"none, if a URL is called instead":        {"reload.webhookURL=https://example.com/s3cret", posts},
		"all, with the mode of all workloads":     {"reload.default=matched", "All workloads without an annotation are in mode matched (reload.default)"},
		"all, with the value of Reloader's chart": {"reload.autoReloadAll=true,reload.default=auto", "All workloads without an annotation are in mode auto (reload.autoReloadAll)"},
	} {
		t.Run(name, func(t *testing.T) {
			notes := notes(t, test.set)
			if !strings.Contains(notes, test.want) || strings.Contains(notes, "s3cret") {
				t.Errorf("notes =\n%s\nwant them to contain %q, and no URL", notes, test.want)
			}
			for _, other := range []string{optIn, observes, posts} {
				if other != test.want && strings.HasPrefix(test.want, "N") && strings.Contains(notes, other) {
					t.Errorf("notes =\n%s\nwant them not to contain %q", notes, other)
				}
			}
		})
	}
}

// The notes of the chart name the image of the config agent, from the registry of the server's image unless it has its own.
func TestNotesNameTheAgentsImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct{ set, want string }{
		"by default":                   {"image.tag=other", "ghcr.io/configdep/configdep-agent:unreleased"},
		"from the server's registry":   {"image.registry=registry.example/,agent.image.tag=v1", "registry.example/configdep/configdep-agent:v1"},
		"by digest, from a mirror":     {"global.imageRegistry=mirror.example,agent.image.registry=b.example,agent.image.tag=v1,agent.image.digest=" + digest, "mirror.example/configdep/configdep-agent@" + digest},
		"whatever the server's digest": {"image.digest=" + digest, "ghcr.io/configdep/configdep-agent:unreleased"},
	} {
		t.Run(name, func(t *testing.T) {
			if notes := notes(t, test.set); !strings.Contains(notes, "\n  "+test.want+"\n") {
				t.Errorf("notes =\n%s\nwant them to name %s", notes, test.want)
			}
		})
	}
}

// notes returns the notes that helm prints after an installation with values.
func notes(t *testing.T, set string) string {
	t.Helper()
	out, err := helm(t, "install", "configdep", mustAbs(t, chart), "--namespace", namespace, "--dry-run=client", "--set", set)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	_, notes, found := strings.Cut(out, "\nNOTES:\n")
	if !found {
		t.Fatalf("helm printed no notes:\n%s", out)
	}
	return notes
}
