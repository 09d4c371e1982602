// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks the server and checks that other clients are still served. The attackers are a tenant who may
// edit one namespace, and a user who floods the API with requests.
package hostile

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) {
		cluster, client = c, kubernetes.NewForConfigOrDie(c.RESTConfig())
	}))
}

// TestHostile runs one attack after the other. During each, another tenant changes a Secret, and the change must
// become a rollout.
func TestHostile(t *testing.T) {
	server, err := install.Install(t.Context(), cluster, install.Options{
		Args: []string{"--shutdown-delay-duration=0s", "--max-watches-per-user=200"}, // without the race detector, which uses more memory
		Env:  []string{"GOMEMLIMIT=1843MiB"},                                         // nine tenths of the limit of the manifests
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	}()
	a := &arena{server: server, replica: server.Replicas[0], neighbour: newNeighbour(t)}
	a.quiet = a.neighbour.rollouts(t, 10)
	t.Run("a tenant", a.tenant)
	t.Run("a user who floods", a.flood)
	t.Run("large responses", a.large)
}

// arena is the environment of the attacks.
type arena struct {
	server    *install.Installation
	replica   *install.Replica
	neighbour *neighbour
	quiet     time.Duration // the median time of a rollout of the neighbour without an attack
}

// neighbour is a tenant who is not part of the attack.
type neighbour struct {
	namespace string
	changes   int
}

func newNeighbour(t *testing.T) *neighbour {
	t.Helper()
	n := &neighbour{namespace: "neighbour"}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(n.namespace).Create(t.Context(), n.secret(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(n.namespace).Create(t.Context(), deployment("web", "db"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *neighbour) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": fmt.Sprint(n.changes)}}
}

// deployment returns a Deployment that has opted in and reads a Secret.
func deployment(name, secret string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "0", policy.MinIntervalAnnotation: "0"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
			}}}},
		},
	}
}

// rollout changes the neighbour's Secret, waits for the rollout, and returns how long it took.
func (n *neighbour) rollout(t *testing.T) time.Duration {
	t.Helper()
	hash := func(ctx context.Context) (string, error) {
		d, err := client.AppsV1().Deployments(n.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return d.Spec.Template.Annotations[record.ConfigHashAnnotation], nil
	}
	before, err := hash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.changes++
	started := time.Now()
	if _, err := client.CoreV1().Secrets(n.namespace).Update(t.Context(), n.secret(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the neighbour's change becomes a rollout", func(ctx context.Context) error {
		now, err := hash(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("the hash is still %q", now)
		}
		return err
	})
	return time.Since(started)
}

// rollouts returns the median time of several rollouts.
func (n *neighbour) rollouts(t *testing.T, count int) time.Duration {
	t.Helper()
	var times []time.Duration
	for range count {
		times = append(times, n.rollout(t))
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// during repeats an attack until the neighbour has had several rollouts, and logs how long they took.
func (a *arena) during(t *testing.T, attack func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			attack(ctx)
		}
	}()
	took := a.neighbour.rollouts(t, 5)
	cancel()
	<-done
	t.Logf("the neighbour's change becomes a rollout in %v, without the attack in %v", took.Round(time.Millisecond), a.quiet.Round(time.Millisecond))
	if err := a.replica.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

// memory returns the resident memory of the replica's process and its peak since forgetPeak, in bytes.
func (a *arena) memory(t *testing.T) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.replica.PID()))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) int64 {
		_, rest, found := strings.Cut(string(status), name+":")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			t.Fatalf("no %s in the status of the process", name)
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	return value("VmRSS"), value("VmHWM")
}

func (a *arena) forgetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.replica.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// takes fails the test if the memory of the replica grows by more than most bytes during an attack.
func (a *arena) takes(t *testing.T, most int64, attack func()) {
	t.Helper()
	a.forgetPeak(t)
	before, _ := a.memory(t)
	attack()
	_, peak := a.memory(t)
	t.Logf("memory grew by %d MB to a peak of %d MB", (peak-before)>>20, peak>>20)
	if peak > before+most {
		t.Errorf("memory grew by %d MB during the attack, want at most %d MB", (peak-before)>>20, most>>20)
	}
}
