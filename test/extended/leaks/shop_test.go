// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// reason is the reason of Reloads.
const reason = "reason of this test"

// shop is a namespace whose workloads contain secrets in all possible places, and read Secrets.
type shop struct {
	*scene

	round int
}

func (s *scene) newShop() *shop {
	s.Helper()
	o := &shop{scene: s}
	s.made(s.core.CoreV1().Namespaces().Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: o.lastApplied("the annotation of a Secret")}, StringData: o.data("a Secret")}
	s.made(s.core.CoreV1().Secrets("shop").Create(s.Context(), secret, metav1.CreateOptions{}))
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Annotations: o.lastApplied("the annotation of a ConfigMap")}, Data: o.data("a ConfigMap")}
	s.made(s.core.CoreV1().ConfigMaps("shop").Create(s.Context(), configMap, metav1.CreateOptions{}))
	web := &appsv1.Deployment{ObjectMeta: o.metadata("web")}
	web.Spec.Replicas, web.Spec.Selector, web.Spec.Template = new(int32(1)), o.selector("web"), o.template("web")
	s.made(s.core.AppsV1().Deployments("shop").Create(s.Context(), web, metav1.CreateOptions{}))
	db := &appsv1.StatefulSet{ObjectMeta: o.metadata("db")}
	db.Annotations[policy.StrategyAnnotation] = "recreate"
	db.Spec.Replicas, db.Spec.Selector, db.Spec.Template = new(int32(1)), o.selector("db"), o.template("db")
	s.made(s.core.AppsV1().StatefulSets("shop").Create(s.Context(), db, metav1.CreateOptions{}))
	agent := &appsv1.DaemonSet{ObjectMeta: o.metadata("agent")}
	agent.Spec.Selector, agent.Spec.Template = o.selector("agent"), o.template("agent")
	s.made(s.core.AppsV1().DaemonSets("shop").Create(s.Context(), agent, metav1.CreateOptions{}))
	pod := &corev1.Pod{ObjectMeta: o.metadata("toolbox"), Spec: o.template("toolbox").Spec}
	s.made(s.core.CoreV1().Pods("shop").Create(s.Context(), pod, metav1.CreateOptions{}))
	o.await("deployment.web", v1alpha1.StateInSync)
	o.await("statefulset.db", v1alpha1.StateInSync)
	o.await("daemonset.agent", v1alpha1.StateInSync)
	return o
}

// new returns a secret text that is different each time.
func (o *shop) new(what string) string {
	o.round++
	text := rand.Text()
	o.secret[fmt.Sprintf("%s (%d)", what, o.round)] = text
	return text
}

func (o *shop) data(what string) map[string]string { return map[string]string{"password": o.new(what)} }

func (o *shop) lastApplied(what string) map[string]string {
	return map[string]string{corev1.LastAppliedConfigAnnotation: `{"note":"` + o.new(what) + `"}`}
}

func (o *shop) metadata(name string) metav1.ObjectMeta {
	annotations := o.lastApplied("an annotation of " + name)
	annotations[policy.ReloadAnnotation], annotations[policy.SettleAnnotation], annotations[policy.MinIntervalAnnotation] = "auto", "0", "0"
	return metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name}}
}

func (o *shop) selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (o *shop) template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{"note": o.new("an annotation of a pod of " + app)}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "app", Image: "app",
				Env:  []corev1.EnvVar{{Name: "PASSWORD", Value: o.new("a value in the environment of " + app)}},
				Args: []string{"--password=" + o.new("an argument of "+app)},
				EnvFrom: []corev1.EnvFromSource{
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
					{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
				},
			}},
		},
	}
}

// views is a client with all permissions, through kube-apiserver.
func (o *shop) views() *versioned.Clientset {
	o.Helper()
	client, err := versioned.NewForConfig(o.cluster.RESTConfig())
	if err != nil {
		o.Fatal(err)
	}
	return client
}

func (o *shop) view(ctx context.Context, name string) (*v1alpha1.ConfigDependency, error) {
	return o.views().ConfigdepV1alpha1().ConfigDependencies("shop").Get(ctx, name, metav1.GetOptions{})
}

func (o *shop) await(name string, state v1alpha1.State) {
	o.Helper()
	await.Until(o, name+" is "+string(state), func(ctx context.Context) error {
		shown, err := o.view(ctx, name)
		if err == nil && (shown.Status.State != state || shown.Status.RecordedHash != shown.Status.ConfigHash) {
			err = fmt.Errorf("state = %s: %s", shown.Status.State, shown.Status.Message)
		}
		return err
	})
}

// awaitReload waits until a workload has been restarted for a source, so that its pods have another hash than
// before.
func (o *shop) awaitReload(name, trigger, before string) {
	o.Helper()
	await.Until(o, name+" is restarted", func(ctx context.Context) error {
		shown, err := o.view(ctx, name)
		if err != nil {
			return err
		}
		last := shown.Status.LastReload
		done := []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateUnknown} // a simulated pod starts in the second of the change
		if last == nil || last.Trigger != trigger || shown.Status.RecordedHash == before || !slices.Contains(done, shown.Status.State) {
			return fmt.Errorf("lastReload = %+v, state = %s: %s", last, shown.Status.State, shown.Status.Message)
		}
		return nil
	})
}

// use sends every kind of request, with every kind of credentials, through kube-apiserver and directly.
func (o *shop) use(replicas []*install.Replica) {
	o.Helper()
	all := "/apis/configdep.io/v1alpha1/namespaces/shop/configdependencies"
	web := all + "/deployment.web"
	anonymous := rest.AnonymousClientConfig(o.cluster.RESTConfig())
	ways := map[string]*rest.Config{"kube-apiserver": anonymous}
	for _, r := range replicas {
		ways[r.Name()] = r.RESTConfig()
	}
	for way, config := range ways {
		expect := func(want int, method, path string, header http.Header, body string) {
			o.Helper()
			if got := o.send(config, method, path, header, body); got != want {
				o.Errorf("through %s: %s %s with %d headers: status = %d, want %d", way, method, path, len(header), got, want)
			}
		}
		for _, token := range []string{goodToken, lastingToken} {
			with := bearer(o.secret[token])
			for _, path := range []string{
				all, all + "?limit=1", web, web + "/pods", all + "?watch=true&timeoutSeconds=1", "/apis/configdep.io/v1alpha1", "/openapi/v3",
				"/apis/configdep.io/v1alpha1/configdependencies?fieldSelector=source%3DSecret/db",
			} {
				expect(http.StatusOK, http.MethodGet, path, with, "")
			}
			expect(http.StatusNotFound, http.MethodGet, all+"/deployment.none", with, "")
			expect(http.StatusBadRequest, http.MethodGet, all+"?fieldSelector=x%3Dy", with, "")
			expect(http.StatusMethodNotAllowed, http.MethodDelete, web, with, "")
			expect(http.StatusCreated, http.MethodPost, web+"/reload?dryRun=All", with, `{"spec":{"reason":"`+reason+`"}}`)
			expect(http.StatusCreated, http.MethodPost, web+"/reload", with, `{"spec":{"reason":"`+reason+`"}}`)
			expect(http.StatusBadRequest, http.MethodPost, web+"/reload", with, `{`)
			expect(http.StatusSwitchingProtocols, http.MethodGet, all+"?watch=true&timeoutSeconds=1", protocol(o.secret[token]), "")
		}
		for _, token := range []string{badToken, forgedToken} {
			expect(http.StatusUnauthorized, http.MethodGet, web, bearer(o.secret[token]), "")
			expect(http.StatusUnauthorized, http.MethodGet, all+"?watch=true", protocol(o.secret[token]), "")
			expect(http.StatusUnauthorized, http.MethodPost, web+"/reload", bearer(o.secret[token]), `{"spec":{"reason":"`+reason+`"}}`)
		}
		expect(http.StatusForbidden, http.MethodGet, web, basic(o.secret[password]), "")
		expect(http.StatusForbidden, http.MethodGet, web, http.Header{}, "")
		if way != "kube-apiserver" {
			expect(http.StatusOK, http.MethodGet, "/metrics", bearer(o.secret[lastingToken]), "")
			expect(http.StatusOK, http.MethodGet, "/readyz?verbose", bearer(o.secret[goodToken]), "")
		}
	}
}

// change changes the sources of the workloads, and their templates.
func (o *shop) change() {
	o.Helper()
	for range 2 {
		before := o.last("deployment.web")
		o.setSecret()
		o.awaitReload("deployment.web", "Secret/db", before)
	}
	before := o.last("daemonset.agent")
	o.setConfigMap()
	o.awaitReload("daemonset.agent", "ConfigMap/settings", before)
	o.setTemplate()
	o.await("deployment.web", v1alpha1.StateInSync)
}

// recreate waits for the workloads that are restarted by eviction.
func (o *shop) recreate() {
	o.Helper()
	before := o.last("statefulset.db")
	o.setSecret()
	o.awaitReload("statefulset.db", "Secret/db", before)
}

// changeWhileNoReplicaRuns makes replicas find out from revisions and pods what has changed.
func (o *shop) changeWhileNoReplicaRuns(replicas []*install.Replica) {
	o.Helper()
	for _, r := range replicas {
		r.Kill()
	}
	o.setSecret()
	if err := await.NextSecond(o.Context()); err != nil {
		o.Fatal(err)
	}
	o.setImage()
	for _, r := range replicas {
		if err := errors.Join(r.Start(), r.AwaitReady(o.Context())); err != nil {
			o.Fatal(err)
		}
	}
	for _, name := range []string{"deployment.web", "statefulset.db", "daemonset.agent"} {
		o.await(name, v1alpha1.StateInSync)
	}
}

// last returns the hash with which the pods of a workload run.
func (o *shop) last(name string) string {
	o.Helper()
	shown, err := o.view(o.Context(), name)
	if err != nil {
		o.Fatal(err)
	}
	return shown.Status.RecordedHash
}

func (o *shop) setSecret() {
	o.Helper()
	update(o, o.core.CoreV1().Secrets("shop"), "db", func(s *corev1.Secret) { s.StringData = o.data("a Secret") })
}

func (o *shop) setConfigMap() {
	o.Helper()
	update(o, o.core.CoreV1().ConfigMaps("shop"), "settings", func(m *corev1.ConfigMap) { m.Data = o.data("a ConfigMap") })
}

// setTemplate changes templates like owners, without configdep's annotations.
func (o *shop) setTemplate() {
	o.Helper()
	update(o, o.core.AppsV1().Deployments("shop"), "web", func(d *appsv1.Deployment) { d.Spec.Template = o.template("web") })
	update(o, o.core.AppsV1().StatefulSets("shop"), "db", func(d *appsv1.StatefulSet) { d.Spec.Template = o.template("db") })
	update(o, o.core.AppsV1().DaemonSets("shop"), "agent", func(d *appsv1.DaemonSet) { d.Spec.Template = o.template("agent") })
}

// setImage changes only images, so that the templates keep configdep's annotations.
func (o *shop) setImage() {
	o.Helper()
	image := "app:" + strconv.Itoa(o.round)
	update(o, o.core.AppsV1().Deployments("shop"), "web", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
	update(o, o.core.AppsV1().StatefulSets("shop"), "db", func(d *appsv1.StatefulSet) { d.Spec.Template.Spec.Containers[0].Image = image })
	update(o, o.core.AppsV1().DaemonSets("shop"), "agent", func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = image })
}

func update[T any](o *shop, client interface {
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	Update(context.Context, *T, metav1.UpdateOptions) (*T, error)
}, name string, change func(*T)) {
	o.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := client.Get(o.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object)
		_, err = client.Update(o.Context(), object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		o.Fatal(err)
	}
}
