// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/test/await"
)

// manifest returns the part of a pod in docs/agent.md that has a text.
func manifest(t *testing.T, text string) corev1.PodSpec {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(root, "docs", "agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	var spec corev1.PodSpec
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(document), -1) {
		if strings.Contains(block[1], text) {
			if err := yaml.UnmarshalStrict([]byte(block[1]), &spec); err != nil {
				t.Fatal(err)
			}
			return spec
		}
	}
	t.Fatalf("docs/agent.md has no manifest with %q", text)
	return spec
}

// roles lets the pods of a namespace do what docs/agent.md says, for the objects of these tests.
const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: agent}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [app, nginx], verbs: [list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [nginx-tls], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [patch]}
- {apiGroups: [""], resources: [events], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: agent}
subjects: [{kind: ServiceAccount, name: default}]
`

// sidecar keeps files for the application, and signals it.
var sidecar = `
      - name: config
        image: ` + agentImage + `
        restartPolicy: Always
        args: [--dir=/config, --configmap=app, --reload-signal=HUP, --process=app, --settle=100ms, "--report=annotation,events"]
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        startupProbe: {httpGet: {path: /startupz, port: 9533}, periodSeconds: 1, failureThreshold: 60}
        livenessProbe: {httpGet: {path: /livez, port: 9533}}
        securityContext: ` + security + `
        volumeMounts: [{name: config, mountPath: /config}]
`

// withSidecar returns the application with a sidecar that it shares its processes with, and its files.
func withSidecar(sidecar string) string {
	manifests := deployment(1, "", sidecar, "\n      - {name: config, emptyDir: {medium: Memory}}\n")
	manifests = strings.Replace(manifests, "      containers:\n", "      shareProcessNamespace: true\n      containers:\n", 1)
	const mount = "        - {name: content, mountPath: /volume}\n"
	return strings.Replace(manifests, mount, mount+"        - {name: config, mountPath: /config, readOnly: true}\n", 1)
}

// signalled waits until the application in a pod has a file with a value, and has got so many signals.
func signalled(t *testing.T, pod *corev1.Pod, value string, times int) {
	t.Helper()
	await.Until(t, "the application has the file and the signal", func(ctx context.Context) error {
		file, err := get(ctx, pod, "/file/config/greeting")
		if err != nil {
			return err
		}
		signals, err := get(ctx, pod, "/signals")
		if err == nil && (file != value || strings.Count(signals, "hangup") != times) {
			err = fmt.Errorf("it has %q, and the signals %q", file, signals)
		}
		return err
	})
}

// A sidecar without a token copies what the kubelet has written into a volume, and notices when the kubelet switches its link.
func testVolume(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "volume")
	apply(t, ns, content)
	reads := strings.NewReplacer("--configmap=app", "--volume=/source", `, "--report=annotation,events"`, "",
		"volumeMounts: [", "volumeMounts: [{name: content, mountPath: /source, readOnly: true}, ")
	manifests := withSidecar(reads.Replace(sidecar))
	apply(t, ns, strings.Replace(manifests, "      containers:\n", "      automountServiceAccountToken: false\n      containers:\n", 1))
	pod := onePod(t, ns, all("one"))
	for i := range 3 {
		value := fmt.Sprint("copied-", i)
		change(t, ns, value)
		annotate(t, pod, "example.com/nudge", value) // the kubelet would take a minute
		onePod(t, ns, read{Env: "one", File: "one", Volume: value})
		started := time.Now()
		signalled(t, pod, value, i+1)
		t.Logf("from the new file in the volume to the signal: %.2f s", time.Since(started).Seconds())
	}
}

// A sidecar with the token of its pod keeps files for the application, signals it, and reports what it has applied.
func testSidecar(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "sidecar")
	apply(t, ns, content)
	apply(t, ns, roles)
	apply(t, ns, withSidecar(sidecar))
	pod := onePod(t, ns, all("one"))
	version := ""
	for i := range 3 {
		value := fmt.Sprint("signalled-", i)
		started := time.Now()
		version = change(t, ns, value)
		signalled(t, pod, value, i+1)
		t.Logf("from the change to the signal: %.2f s", time.Since(started).Seconds())
	}
	await.Until(t, "the pod says that the last version is applied", func(ctx context.Context) error {
		now, err := client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := now.Annotations["configdep.io/agent-status"]
		if !strings.Contains(status, `"state":"Applied"`) || !strings.Contains(status, version) {
			err = fmt.Errorf("it says %q, and the version is %s", status, version)
		}
		return err
	})
	if signals, err := get(t.Context(), pod, "/signals"); err != nil || strings.Count(signals, "hangup") != 3 {
		t.Errorf("the application got %q in the end, want one signal for each change (%v)", signals, err)
	}
	await.Until(t, "an event says so", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=ConfigApplied"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}
