// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
)

// commandPages are the pages whose commands are tried one by one. Other tests run those of the other pages, in their order.
var commandPages = []string{"api", "concepts", "install", "metrics", "notifications", "operations", "security", "troubleshooting"}

// triedElsewhere matches commands that this test does not run, with the reason.
var triedElsewhere = map[string]*regexp.Regexp{
	"helm, make and scripts are run by test/extended":       regexp.MustCompile(`^(SIGNING_KEY=none )?(helm|make) `),
	"a registry, OpenShift and the network are not here":    regexp.MustCompile(`^(for \w+ in .*docker |amd64=|cosign |gh |git clone |image=|kubectl krew|oc |signer=|--)`),
	"test/extended/release verifies the files of a release": regexp.MustCompile(`\$files|\$version|^version=|SHA256SUMS|^(set -a|ssh-keygen)`),
	"TestApproval approves":                                 regexp.MustCompile(`approval\.yaml`),
	"TestStandalone runs the server outside of the cluster": regexp.MustCompile(`^(\.cache/bin/)?configdep-apiserver |--kubeconfig=configdep.yaml`),
	"port-forward does not end":                             regexp.MustCompile(`port-forward`),
	"no Deployment runs the servers of the tests":           regexp.MustCompile(`rollout (restart|status) deployment |delete deployment configdep-apiserver`),
	"it computes a signature of a body that is not here":    regexp.MustCompile(`^printf 'sha256`),
}

// since136 matches commands about what only Kubernetes 1.36 and later have.
var since136 = regexp.MustCompile(`mutatingadmissionpolicies|-k artifacts/base`)

// Each command of these pages is accepted by kubectl and by the control plane: its flags, names, fields and selectors exist.
func TestCommandsOfPages(t *testing.T) {
	t.Parallel()
	for _, page := range commandPages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			r := &recipe{shop: newShop(t), dir: t.TempDir()}
			r.tools()
			r.forCommands()
			tried := 0
			older, err := cluster.Older("1.36")
			r.must(err)
			text, err := os.ReadFile("../../docs/" + page + ".md")
			r.must(err)
			for _, b := range blocksOf(string(text)) {
				if b.language == "console" {
					tried += r.tryCommands(b.text, older)
				}
			}
			if tried == 0 {
				t.Error("no command was tried")
			}
		})
	}
}

// forCommands creates what the commands name.
func (r *recipe) forCommands() {
	r.Helper()
	root, err := controlplane.RepositoryRoot()
	r.must(err)
	r.must(os.Symlink(filepath.Join(root, "artifacts"), filepath.Join(r.dir, "artifacts")))
	r.must(os.WriteFile(filepath.Join(r.dir, "reload.yaml"), []byte("spec:\n  reason: rotated by hand\n  mode: Always\n"), 0o600))
	r.must(os.WriteFile(filepath.Join(r.dir, "config.yaml"), []byte("{}"), 0o600))
	r.web("web", "api")
	create(r.T, kube.AppsV1().StatefulSets(r.namespace).Create, statefulSet("db", envSecretKey("db", "password")))
	runningPods(r.T, r.namespace, "db", 2, nil)
	r.shell("kubectl create -f reload.yaml --raw /apis/configdep.io/v1alpha1/namespaces/"+r.namespace+"/configdependencies/deployment.web/reload", 0)
	await.Until(r.T, "the audit log has the Reload", func(context.Context) error {
		log, err := os.ReadFile(filepath.Join(cluster.Dir(), auditFile))
		r.must(err)
		log = log[:bytes.LastIndexByte(log, '\n')+1] // the last line may not be complete
		r.must(os.WriteFile(filepath.Join(r.dir, auditFile), log, 0o600))
		if !bytes.Contains(log, []byte("/"+r.namespace+"/configdependencies/deployment.web/reload")) {
			return errors.New("it has not")
		}
		return nil
	})
}

// tryCommands runs the commands of a block, but for those of since136 if the control plane is older, and returns how many.
func (r *recipe) tryCommands(text string, older bool) (tried int) {
	r.Helper()
	transcript := strings.Contains("\n"+text, "\n$ ")
	text = regexp.MustCompile(`\\\n|([|])\n`).ReplaceAllString(text, "$1 ")
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if command == "" || strings.HasPrefix(command, "#") || transcript && !is || older && since136.MatchString(command) {
			continue
		}
		if r.tryCommand(shopName.ReplaceAllString(command, r.namespace)) {
			tried++
		}
	}
	return tried
}

// reads and writes match commands by the verb of kubectl.
var (
	reads  = regexp.MustCompile(`^kubectl (-n \S+ )?(configdep|describe|events|explain|get|wait) `)
	writes = regexp.MustCompile(`^kubectl (-n \S+ )?(annotate|apply|create|delete|patch) `)
)

// tryCommand runs a command, unless another test does. Only a Reload is no dry run.
func (r *recipe) tryCommand(command string) bool {
	r.Helper()
	for _, of := range triedElsewhere {
		if of.MatchString(command) {
			return false
		}
	}
	switch {
	case strings.HasPrefix(command, "jq ") && strings.HasSuffix(command, " "+auditFile):
		r.prints(r.shell(command, 0), "\tadmin\t"+r.namespace+"\tdeployment.web\t201\n")
		return true
	case reads.MatchString(command), strings.HasPrefix(command, "kubectl create --raw "):
	case !writes.MatchString(command):
		r.Errorf("%s\nis neither tried nor an exception", command)
		return false
	case strings.Contains(command, " delete "):
		command = writes.ReplaceAllString(command, "$0--dry-run=server --ignore-not-found ")
	case strings.Contains(command, " create "): // what it names may exist
		command = writes.ReplaceAllString(command, "$0--dry-run=client ")
	default:
		command = writes.ReplaceAllString(command, "$0--dry-run=server ")
	}
	r.shell(command, 0)
	return true
}
