// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package kinds tests workloads that are custom resources: kinds that come and go, how each is restarted, and fields that get their
// values from Secrets. The controllers of the kinds are simulated, as far as their status goes.
package kinds

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

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
var settings = []string{"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s", "--max-version-lag=5s"}

// described are kinds that do not come with configdep.
const described = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
- group: goharbor.example.com
  kind: HarborCluster
  resource: harborclusters
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
`

func TestMain(m *testing.M) {
	// Tests mostly wait for the server.
	if err := flag.Set("test.parallel", "4"); err != nil { // -parallel overrides this
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
	defer cancel()
	if cluster, err = controlplane.Start(ctx, controlplane.Options{Nodes: 1, Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	if api, err = versioned.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	if objects, err = dynamic.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	file, err := os.CreateTemp("", "kinds-*.yaml")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	if _, err := file.WriteString(described); err != nil {
		return 1, err
	}
	if err := file.Close(); err != nil {
		return 1, err
	}
	server, err = install.Install(ctx, cluster, install.Options{Race: install.RaceDetector, Args: append(settings, "--kinds-config="+file.Name())})
	if err != nil {
		return 1, err
	}
	defer func() {
		server.Stop()
		err = errors.Join(err, server.CheckLogs())
	}()
	return m.Run(), nil
}
