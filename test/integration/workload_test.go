// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/test/await"
)

// create creates an object with a method of a typed client, and returns the stored object:
//
//	create(t, kube.AppsV1().Deployments(namespace).Create, deployment("web"))
func create[T any](t *testing.T, do func(context.Context, *T, metav1.CreateOptions) (*T, error), o *T) *T {
	t.Helper()
	made, err := do(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// edit changes an object with a typed client, even while other clients write it, and returns the stored object.
func edit[T any](t *testing.T, client interface {
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	Update(context.Context, *T, metav1.UpdateOptions) (*T, error)
}, name string, change func(*T)) (made *T) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(o)
		made, err = client.Update(t.Context(), o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// remove deletes an object without a grace period.
func remove(t *testing.T, do func(context.Context, string, metav1.DeleteOptions) error, name string) {
	t.Helper()
	if err := do(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

// A use makes the only container of a pod consume a source.
type use func(*corev1.PodSpec)

func envFromConfigMap(name string) use {
	return func(p *corev1.PodSpec) {
		p.Containers[0].EnvFrom = append(p.Containers[0].EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
	}
}

func envFromSecret(name string) use {
	return func(p *corev1.PodSpec) {
		p.Containers[0].EnvFrom = append(p.Containers[0].EnvFrom, corev1.EnvFromSource{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
	}
}

func envSecretKey(name, key string) use {
	return func(p *corev1.PodSpec) {
		p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}})
	}
}

// optional uses sources, which may be absent.
func optional(sources ...ref) use {
	return func(p *corev1.PodSpec) {
		for _, r := range sources {
			kind, name := r.split()
			of := corev1.LocalObjectReference{Name: name}
			from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: of, Optional: new(true)}}
			if kind == "Secret" {
				from = corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: of, Optional: new(true)}}
			}
			p.Containers[0].EnvFrom = append(p.Containers[0].EnvFrom, from)
		}
	}
}

func podTemplate(app string, uses ...use) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
			// A deleted pod is removed as soon as kwok has seen it.
			TerminationGracePeriodSeconds: new(int64(1)),
			// Otherwise ConfigMap kube-root-ca.crt is a source of pods without a workload.
			AutomountServiceAccountToken: new(false),
		},
	}
	for _, use := range uses {
		use(&template.Spec)
	}
	return template
}

func metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func deployment(name string, uses ...use) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metadata(name),
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selects(name), Template: podTemplate(name, uses...), RevisionHistoryLimit: new(int32(100))}, // so that ReplicaSets count templates
	}
}

// single returns a Deployment with one pod.
func single(name string, uses ...use) *appsv1.Deployment {
	o := deployment(name, uses...)
	o.Spec.Replicas = new(int32(1))
	return o
}

// asleep returns a Deployment without pods, which is not restarted.
func asleep(name string, uses ...use) *appsv1.Deployment {
	o := deployment(name, uses...)
	o.Spec.Replicas = new(int32(0))
	return o
}

func statefulSet(name string, uses ...use) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metadata(name),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: selects(name), Template: podTemplate(name, uses...),
			PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	}
}

func daemonSet(name string, uses ...use) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metadata(name),
		Spec:       appsv1.DaemonSetSpec{Selector: selects(name), Template: podTemplate(name, uses...)},
	}
}

// createWorkload creates a Deployment, StatefulSet or DaemonSet named web, in another second than what it reads, as pods that may have started before
// a source was created are in doubt.
func createWorkload(t *testing.T, namespace, kind string, annotations map[string]string, uses ...use) metav1.Object {
	t.Helper()
	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	switch apps := kube.AppsV1(); kind {
	case "Deployment":
		o := deployment("web", uses...)
		o.Annotations = annotations
		return create(t, apps.Deployments(namespace).Create, o)
	case "StatefulSet":
		o := statefulSet("web", uses...)
		o.Annotations = annotations
		return create(t, apps.StatefulSets(namespace).Create, o)
	default:
		o := daemonSet("web", uses...)
		o.Annotations = annotations
		return create(t, apps.DaemonSets(namespace).Create, o)
	}
}

func replicaSet(name string, uses ...use) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metadata(name),
		Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: selects(name), Template: podTemplate(name, uses...)},
	}
}

func job(name string, uses ...use) *batchv1.Job {
	o := &batchv1.Job{ObjectMeta: metadata(name), Spec: batchv1.JobSpec{Template: podTemplate(name, uses...)}}
	o.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return o
}

func cronJob(name string, uses ...use) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metadata(name),
		Spec: batchv1.CronJobSpec{
			Schedule:    "0 0 1 1 *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: job(name, uses...).Spec},
		},
	}
}

func pod(name string, uses ...use) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metadata(name), Spec: podTemplate(name, uses...).Spec}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
}

// runningPods returns the pods of an app once their number is as wanted, and all of them are ready, not
// terminating, and not among the old ones.
func runningPods(t *testing.T, namespace, app string, want int, old map[types.UID]bool) map[types.UID]bool {
	t.Helper()
	var running map[types.UID]bool
	await.Until(t, fmt.Sprintf("%d new pods of %s run", want, app), func(ctx context.Context) error {
		list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		running = map[types.UID]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			switch {
			case old[p.UID]:
				return fmt.Errorf("%s is an old pod", p.Name)
			case p.DeletionTimestamp != nil:
				return fmt.Errorf("%s is terminating", p.Name)
			case p.Status.Phase != corev1.PodRunning:
				return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
			running[p.UID] = true
		}
		if len(running) != want {
			return errors.New("number of running pods: " + fmt.Sprint(len(running)))
		}
		return nil
	})
	return running
}
