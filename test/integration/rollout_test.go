// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// optedIn opts a workload in and sets more annotations, given as pairs.
func optedIn(m metav1.Object, more ...string) {
	annotations := map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	m.SetAnnotations(annotations)
}

// A change of content replaces all pods, once, and the view and an event say why. A change of a key that the pods
// do not read, or of metadata, does nothing.
func TestChangeOfContentReplacesAllPods(t *testing.T) {
	t.Parallel()
	for kind, pods := range map[string]int{"Deployment": 2, "StatefulSet": 2, "DaemonSet": 3} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			name := strings.ToLower(kind) + ".web"
			write(t, namespace, "Secret/db", "password", "x", "unread", "x")
			createWorkload(t, namespace, kind, pairs(policy.ReloadAnnotation, "auto"), envSecretKey("db", "password"))
			old := runningPods(t, namespace, "web", pods, nil)
			before := view(t, namespace, name, applied)
			generation := getRollout(t, namespace, kind, "web").Generation

			write(t, namespace, "Secret/db", "unread", "y")
			edit(t, kube.CoreV1().Secrets(namespace), "db", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} })
			write(t, namespace, "Secret/db", "password", "y")
			runningPods(t, namespace, "web", pods, old)
			after := view(t, namespace, name, applied, newer(before))
			if got := getRollout(t, namespace, kind, "web").Generation; got != generation+1 {
				t.Errorf("generation = %[2]d, was %[1]d", generation, got)
			}
			if last := after.Status.LastReload; last == nil || last.Trigger != "Secret/db" || last.RequestedBy != "" {
				t.Errorf("lastReload = %+v", last)
			}
			want := []string{"Restarted because Secret/db has changed"}
			await.Until(t, "an event reports the restart", func(context.Context) error {
				if got := shopIn(t, namespace).told(kind, "web", "ConfigRestarted"); !slices.Equal(got, want) {
					return fmt.Errorf("events = %q", got)
				}
				return nil
			})
		})
	}
}

// Flags of the server set the defaults for annotations.
func TestDefaultsOfTheServer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	create(t, kube.AppsV1().Deployments(namespace).Create, single("web", envFromSecret("db")))
	own := asleep("own", envFromSecret("db"))
	optedIn(own)
	create(t, kube.AppsV1().Deployments(namespace).Create, own)
	r := replica(t, "defaults", install.ReplicaOptions{Args: []string{"--default-reload=matched", "--settle=7s", "--min-interval=8m"}})
	s := &shop{T: t, namespace: namespace, shownBy: []endpoint{endpointOf(r)}}
	for name, want := range map[string]string{"deployment.web": "Matched, by Default: 7s, 8m0s", "deployment.own": "Auto, by configdep.io/reload: 0s, 0s"} {
		p := s.view(name).Spec.Reload
		if got := fmt.Sprintf("%s, by %s: %v, %v", p.Mode, p.DeclaredBy, p.Settle.Duration, p.MinInterval.Duration); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// If the key of the config hash is removed, it is restored. Hashes with another key cannot be compared: the
// current content is recorded again, and nothing is restarted.
func TestLostAndReplacedKeyOfTheHashes(t *testing.T) {
	namespace := newNamespace(t)
	secrets := kube.CoreV1().Secrets(install.Namespace)
	write(t, namespace, "Secret/db", "password", "x")
	o := asleep("web", envFromSecret("db"))
	optedIn(o)
	create(t, kube.AppsV1().Deployments(namespace).Create, o)
	before := view(t, namespace, "deployment.web", applied)
	template := getRollout(t, namespace, "Deployment", "web").template
	key, err := secrets.Get(t.Context(), "configdep-hmac-key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	edit(t, secrets, key.Name, func(s *corev1.Secret) { s.Data = nil })
	await.Until(t, "the key is restored", func(ctx context.Context) error {
		back, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
		if err == nil && string(back.Data["key"]) != string(key.Data["key"]) {
			err = errors.New("the Secret has another key")
		}
		return err
	})
	edit(t, secrets, key.Name, func(s *corev1.Secret) { s.Data["key"] = []byte(strings.Repeat(rand.Text(), 2)[:len(s.Data["key"])]) })
	after := view(t, namespace, "deployment.web", applied, newer(before))
	now := getRollout(t, namespace, "Deployment", "web").template
	sameTemplate(t, "with another key", &template, &now)
	if after.Status.LastReload != nil {
		t.Errorf("lastReload = %+v", after.Status.LastReload)
	}

	// No replica was ready while they read everything again. kube-apiserver may have cached that for discovery,
	// which other tests use.
	await.Until(t, "the API is discovered", func(context.Context) error {
		_, resources, err := kube.Discovery().ServerGroupsAndResources()
		if err == nil && !slices.ContainsFunc(resources, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == "configdep.io/v1alpha1" && len(l.APIResources) > 0
		}) {
			err = errors.New("the API is not discovered")
		}
		return err
	})
}
