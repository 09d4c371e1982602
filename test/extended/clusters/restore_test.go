// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// restored is the namespace of TestRestore.
const restored = "restored"

// What replicas show, and what the agent has written, is what etcd holds after a restore, and what changes then is followed: also where other
// clients have written so much since that revisions have overtaken those from before, at which watches wait.
func TestRestore(t *testing.T) {
	s := newRestore(t)
	s.follows("1")
	for _, tt := range []struct {
		name   string
		writes int // after the restore
	}{
		{"to a few changes before", 0},
		{"and overtaken at once", 2000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.T = t
			before := s.change("before " + tt.name)
			s.follows(before)
			s.must(cluster.BackUp(t.Context()))
			s.follows(before)
			s.deployment("late")
			s.change("lost")
			s.follows(s.change("lost as well"))
			s.must(cluster.Restore(t.Context()))
			s.write(tt.writes)
			s.follows(before)
			for i, api := range s.replicas {
				await.Until(t, fmt.Sprintf("replica %d does not show what etcd lacks", i), func(ctx context.Context) error {
					_, err := api.ConfigdepV1alpha1().ConfigDependencies(restored).Get(ctx, "deployment.late", metav1.GetOptions{})
					if apierrors.IsNotFound(err) {
						return nil
					}
					return fmt.Errorf("it does (%w)", err)
				})
			}
			s.follows(s.change("after " + tt.name))
		})
	}
}

// restore is a Deployment that reads a ConfigMap, and an agent that writes its content.
type restore struct {
	*testing.T
	file     string
	replicas []versioned.Interface
}

func newRestore(t *testing.T) *restore {
	t.Helper()
	s := &restore{T: t, file: filepath.Join(t.TempDir(), "files", "key")}
	for _, r := range server.Replicas {
		s.replicas = append(s.replicas, versioned.NewForConfigOrDie(r.AdminConfig()))
	}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: restored}}, metav1.CreateOptions{})
	s.must(err)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "1"}}
	_, err = client.CoreV1().ConfigMaps(restored).Create(t.Context(), config, metav1.CreateOptions{})
	s.must(err)
	s.deployment("web")
	s.agent()
	return s
}

func (s *restore) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *restore) deployment(name string) {
	s.Helper()
	label := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments(restored).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: "auto"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: label},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{
				ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
			}}}}},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// agent starts an agent with rights of its own.
func (s *restore) agent() {
	s.Helper()
	ctx := s.Context()
	dir := s.TempDir()
	flags, err := install.AgentAccount(ctx, cluster, restored, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"settings"}, Verbs: []string{"list", "watch"},
	})
	s.must(err)
	program, err := install.Build(ctx, "./cmd/configdep-agent", install.RaceDetector)
	s.must(err)
	log, err := os.Create(filepath.Join(dir, "log"))
	s.must(err)
	flags = append(flags, "--dir="+filepath.Dir(s.file), "--namespace="+restored, "--configmap=settings", "--listen=", "--settle=100ms")
	c := cluster.Command(context.WithoutCancel(ctx), program, flags...)
	c.Stdout, c.Stderr = log, log
	s.must(c.Start())
	t := s.T
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		_ = log.Close()
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("log of the agent (%v):\n%s", err, text)
		}
	})
}

// change changes the ConfigMap.
func (s *restore) change(to string) string {
	s.Helper()
	_, err := client.CoreV1().ConfigMaps(restored).Patch(s.Context(), "settings", types.MergePatchType, []byte(`{"data":{"key":"`+to+`"}}`), metav1.PatchOptions{})
	s.must(err)
	return to
}

// write writes another object so many times.
func (s *restore) write(times int) {
	s.Helper()
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			name := fmt.Sprint("other-", n)
			for i := range times / 8 {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"i": fmt.Sprint(i)}}
				_, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(s.Context(), o, metav1.UpdateOptions{})
				if apierrors.IsNotFound(err) {
					_, err = client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(s.Context(), o, metav1.CreateOptions{})
				}
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// follows waits until the ConfigMap has a content, each replica shows that the Deployment is in sync with it, and the agent has written it.
func (s *restore) follows(content string) {
	s.Helper()
	config, err := client.CoreV1().ConfigMaps(restored).Get(s.Context(), "settings", metav1.GetOptions{})
	if err != nil || config.Data["key"] != content {
		s.Fatalf("the ConfigMap has %v, want %q (%v)", config.Data, content, err)
	}
	await.Until(s.T, "the agent has written "+content, func(context.Context) error {
		text, err := os.ReadFile(s.file)
		if err == nil && string(text) != content {
			err = fmt.Errorf("the file has %q", text)
		}
		return err
	})
	for i, api := range s.replicas {
		await.Passes(s.T, fmt.Sprintf("replica %d shows the Deployment in sync with %s", i, content), func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
			return api.ConfigdepV1alpha1().ConfigDependencies(restored).Get(ctx, "deployment.web", metav1.GetOptions{})
		}, func(o *v1alpha1.ConfigDependency) error {
			s := &o.Status
			if s.State != v1alpha1.StateInSync || len(s.Sources) != 1 || s.Sources[0].ResourceVersion != config.ResourceVersion {
				return fmt.Errorf("it is %s (%s) with %+v, want version %s", s.State, s.Message, s.Sources, config.ResourceVersion)
			}
			return nil
		})
	}
}
