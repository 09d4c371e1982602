// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package kinds tests workloads that are custom resources: kinds that come and go, how each is restarted, and fields that get their
// values from Secrets. The controllers of the kinds are simulated, as far as their status goes.
package kinds

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share these.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	client  kubernetes.Interface
	api     versioned.Interface
	objects dynamic.Interface
)

// settings are the arguments of the server. Tests expect a restart at once.
var settings = []string{"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s", "--max-version-lag=5s",
	"--strategies=annotation,env-var,recreate"}

// described are kinds that do not come with configdep.
const described = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
- group: goharbor.example.com
  kind: HarborSite
  resource: harborsites
  versions: [v2, v1]
  sources:
  - {kind: Secret, name: ".spec.database.passwordRef", keyName: password}
  - {kind: ConfigMap, name: ".spec.extra[*].name", namespace: ".spec.extra[*].namespace", optional: true}
  reload: {by: Field, path: .spec.restartedAt}
  status:
    observedGeneration: .status.observedGeneration
    complete: [{condition: Ready}]
- group: goharbor.example.com
  kind: HarborStore
  resource: harborstores
  versions: [v1]
  sources: [{kind: Secret, name: .spec.secretName}]
  reload: {by: Annotation}
  fields: true
- group: goharbor.example.com
  kind: HarborReport
  resource: harborreports
  versions: [v1]
  sources: [{kind: Secret, name: .spec.secretName}]
  reload: {by: Event}
- group: goharbor.example.com
  kind: HarborAgent
  resource: harboragents
  versions: [v1]
  podTemplates: [{path: .spec.agent.template}, {path: ".spec.others[*].template"}]
  reload: {by: TemplateAnnotation, path: .spec.agent.template}
- group: goharbor.example.com
  kind: HarborFarm
  resource: harborfarms
  versions: [v1]
  podTemplates: [{path: .spec.leader.template}, {path: .spec.worker.template}]
  reload: {by: TemplateAnnotation, path: .spec.worker.template}
`

// example returns the kinds of the example in docs/kinds.md.
func example() (string, error) {
	text, err := os.ReadFile("../../../docs/kinds.md")
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(string(text), "<!-- example -->\n")
	_, after, inside := strings.Cut(after, "\nkinds:\n")
	kinds, _, ends := strings.Cut(after, "```\n")
	if !found || !inside || !ends {
		return "", errors.New("docs/kinds.md has no example")
	}
	return kinds, nil
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	controlplane.Parallel(4)
	dir, err := os.MkdirTemp("", "kinds-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	documented, err := example()
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "kinds.yaml")
	if err := os.WriteFile(file, []byte(described+documented), 0o600); err != nil {
		panic(err)
	}
	return install.Run(m, controlplane.Options{Nodes: 1}, install.Options{
		Race: install.RaceDetector, Args: append(settings, "--kinds-config="+file),
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
		objects = dynamic.NewForConfigOrDie(c.RESTConfig())
	})
}
