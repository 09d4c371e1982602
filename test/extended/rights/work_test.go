// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	policyv1alpha1 "github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// shop is a namespace that makes the server use all its permissions.
type shop struct {
	namespace string
	turn      int
}

func labels(name string) map[string]string { return map[string]string{"app": name} }

func metadata(name string, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Labels: labels(name), Annotations: map[string]string{
		policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "0", policy.MinIntervalAnnotation: "0",
	}}
	for i := 0; i < len(annotations); i += 2 {
		m.Annotations[annotations[i]] = annotations[i+1]
	}
	return m
}

func template(name, source string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Image: "app:1",
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	}}}}
}

func selects(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels(name)}
}

func newShop(ctx context.Context) (*shop, error) {
	s := &shop{}
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	s.namespace = made.Name
	for _, name := range []string{"db", "away"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": "x"}}
		if _, err := client.CoreV1().Secrets(made.Name).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	policies := dynamic.NewForConfigOrDie(cluster.RESTConfig()).Resource(policyv1alpha1.SchemeGroupVersion.WithResource("reloadpolicies"))
	limit := &unstructured.Unstructured{}
	limit.SetGroupVersionKind(policyv1alpha1.SchemeGroupVersion.WithKind("ReloadPolicy"))
	limit.SetName(s.namespace)
	if _, err := policies.Create(ctx, limit, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	apps := client.AppsV1()
	_, err5 := apps.Deployments(s.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metadata("web"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selects("web"), Template: template("web", "db")},
	}, metav1.CreateOptions{})
	_, err1 := apps.StatefulSets(s.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metadata("db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selects("db"), Template: template("db", "db")},
	}, metav1.CreateOptions{})
	// The source of this workload is changed only while no server runs.
	_, err4 := apps.StatefulSets(s.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metadata("away"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selects("away"), Template: template("away", "away")},
	}, metav1.CreateOptions{})
	_, err2 := apps.DaemonSets(s.namespace).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metadata("logs"), Spec: appsv1.DaemonSetSpec{Selector: selects("logs"), Template: template("logs", "db")},
	}, metav1.CreateOptions{})
	_, err3 := apps.Deployments(s.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metadata("recreated", policy.StrategyAnnotation, record.Recreate.Name()),
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selects("recreated"), Template: template("recreated", "db")},
	}, metav1.CreateOptions{})
	return s, errors.Join(err1, err2, err3, err4, err5)
}

func (s *shop) setPassword(ctx context.Context, secret string) error {
	s.turn++
	data := fmt.Sprintf(`{"stringData": {"password": %q}}`, strconv.Itoa(s.turn))
	_, err := client.CoreV1().Secrets(s.namespace).Patch(ctx, secret, types.MergePatchType, []byte(data), metav1.PatchOptions{})
	return err
}

// whileAway makes changes while no server runs: content changes, and in another second a template. The Lease, the APIService, the certificate and its CAs are deleted.
func (s *shop) whileAway(ctx context.Context) error {
	if err := s.setPassword(ctx, "away"); err != nil {
		return err
	}
	if err := await.NextSecond(ctx); err != nil {
		return err
	}
	image := fmt.Sprintf(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:away-%d"}]`, s.turn)
	_, err1 := client.AppsV1().StatefulSets(s.namespace).Patch(ctx, "away", types.JSONPatchType, []byte(image), metav1.PatchOptions{})
	err2 := client.CoordinationV1().Leases(install.Namespace).Delete(ctx, install.Name, metav1.DeleteOptions{})
	_, err5 := cluster.Kubectl(ctx, "delete", "apiservice", install.APIService)
	empty := []byte(`{"data": null}`)
	_, err3 := client.CoreV1().Secrets(install.Namespace).Patch(ctx, install.CertificateSecret, types.MergePatchType, empty, metav1.PatchOptions{})
	_, err4 := client.CoreV1().ConfigMaps(install.Namespace).Patch(ctx, "configdep-serving-ca", types.MergePatchType, empty, metav1.PatchOptions{})
	return errors.Join(err1, err2, err3, err4, err5)
}

// loseKey empties the Secret with the key. A replica that has read the key restores it; another would create a new
// one, with which records could not be compared.
func (s *shop) loseKey(ctx context.Context) error {
	_, err := client.CoreV1().Secrets(install.Namespace).Patch(ctx, ingest.KeySecret, types.MergePatchType, []byte(`{"data": null}`), metav1.PatchOptions{})
	return err
}

// provoke makes the server use every permission that it uses while it runs.
func (s *shop) provoke(ctx context.Context, api versioned.Interface) error {
	err := s.setPassword(ctx, "db") // another change
	// Flow schemas without a priority level, which one of the API servers reports first. They are created before
	// requests that need the server, which may not answer in time.
	for i := range 5 {
		schema := &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dangling-%d-%d", s.turn, i)},
			Spec:       flowcontrolv1.FlowSchemaSpec{PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "absent"}, MatchingPrecedence: 9000},
		}
		_, schemaErr := client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{})
		if s.turn > 1 {
			before := fmt.Sprintf("dangling-%d-%d", s.turn-1, i)
			if deleteErr := client.FlowcontrolV1().FlowSchemas().Delete(ctx, before, metav1.DeleteOptions{}); !apierrors.IsNotFound(deleteErr) {
				err = errors.Join(err, deleteErr)
			}
		}
		err = errors.Join(err, schemaErr)
	}
	// Each kind is restarted on request, twice, because a repeated event is counted.
	for _, name := range []string{"deployment.web", "deployment.web", "statefulset.db", "daemonset.logs"} {
		_, reloadErr := api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Reload(ctx, name, &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Reason: "for the test"}}, metav1.CreateOptions{})
		err = errors.Join(err, reloadErr)
	}
	// In an unknown namespace, the server looks the namespace up.
	_, reloadErr := api.ConfigdepV1alpha1().ConfigDependencies(fmt.Sprint("nowhere-", s.turn)).Reload(ctx, "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
	if !apierrors.IsNotFound(reloadErr) {
		err = errors.Join(err, fmt.Errorf("a Reload in an unknown namespace: %w", reloadErr))
	}
	// The leader repairs an invalid Secret.
	damaged := []byte(`{"data": {"tls.crt": "c3BvaWx0"}}`)
	_, damageErr := client.CoreV1().Secrets(install.Namespace).Patch(ctx, install.CertificateSecret, types.MergePatchType, damaged, metav1.PatchOptions{})
	if damageErr != nil && !apierrors.IsNotFound(damageErr) {
		err = errors.Join(err, damageErr)
	}
	return err
}
