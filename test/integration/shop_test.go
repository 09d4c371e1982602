// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// shop is a namespace, as some servers show it.
type shop struct {
	*testing.T

	namespace string
	shownBy   []endpoint // by each, since the aggregator may ask any
	client    configdepv1alpha1.ConfigdepV1alpha1Interface
}

// shopIn returns a shop in a namespace that exists.
func shopIn(t *testing.T, namespace string) *shop {
	t.Helper()
	return &shop{t, namespace, installed, configdep}
}

func newShop(t *testing.T) *shop {
	t.Helper()
	return shopIn(t, newNamespace(t))
}

// ownNamespaces are the names of the namespaces that the installation neither reads nor shows, so that a test can have a server for one of
// them. A server that restarts workloads in some namespaces also puts right what it finds in others, so no two may see the same.
func ownNamespaces() (names []string) {
	for i := range 64 {
		names = append(names, fmt.Sprint("own-", i))
	}
	return names
}

// ownTaken is how many of them are taken.
var ownTaken atomic.Int32

// newOwnShop returns a shop that the installation does not see, with pairs of labels of the namespace.
func newOwnShop(t *testing.T, labels ...string) *shop {
	t.Helper()
	name := ownNamespaces()[ownTaken.Add(1)-1]
	create(t, kube.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pairs(labels...)}})
	return &shop{T: t, namespace: name}
}

// serve starts the server of an own shop, which sees nothing else.
func (s *shop) serve(o install.ReplicaOptions) *install.Replica {
	s.Helper()
	o.Args = append([]string{"--namespaces=" + s.namespace}, o.Args...)
	return serveShops(o, s)
}

// serveShops starts the server of own shops, whose flags say what it sees.
func serveShops(o install.ReplicaOptions, shops ...*shop) *install.Replica {
	s := shops[0]
	s.Helper()
	o.Args = append([]string{"--leader-elect=false"}, o.Args...)
	r := replica(s.T, "of-"+s.namespace, o)
	for _, s := range shops {
		s.shownBy, s.client = []endpoint{endpointOf(r)}, endpointOf(r).ConfigdepV1alpha1()
	}
	return r
}

func (s *shop) api() configdepv1alpha1.ConfigDependencyInterface {
	return s.client.ConfigDependencies(s.namespace)
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// view returns a ConfigDependency once every server shows one that passes all checks.
func (s *shop) view(name string, checks ...func(*v1alpha1.ConfigDependency) error) (found *v1alpha1.ConfigDependency) {
	s.Helper()
	for _, where := range s.shownBy {
		what := fmt.Sprintf("%s shows %s/%s as expected", where.name, s.namespace, name)
		found = await.Passes(s.T, what, func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
			return where.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, name, metav1.GetOptions{})
		}, checks...)
	}
	return found
}

// A ref names a ConfigMap or a Secret, as in Secret/db.
type ref string

func (r ref) split() (kind, name string) {
	kind, name, _ = strings.Cut(string(r), "/")
	return kind, name
}

// write creates a ConfigMap or a Secret with pairs of keys and values, or sets these and keeps the others. It returns the stored object.
func (s *shop) write(r ref, keysAndValues ...string) metav1.Object {
	s.Helper()
	field := "data"
	if kind, _ := r.split(); kind == "Secret" {
		field = "stringData"
	}
	return s.patchSource(r, map[string]any{field: pairs(keysAndValues...)})
}

// annotate sets annotations of a ConfigMap or a Secret, which it creates if there is none.
func (s *shop) annotate(r ref, keysAndValues ...string) metav1.Object {
	s.Helper()
	return s.patchSource(r, map[string]any{"metadata": map[string]any{"annotations": pairs(keysAndValues...)}})
}

// patchSource merges a patch into a ConfigMap or a Secret, or creates one from it.
func (s *shop) patchSource(r ref, patch map[string]any) metav1.Object {
	s.Helper()
	kind, name := r.split()
	data := asJSON(s.T, patch)
	secrets, configMaps := kube.CoreV1().Secrets(s.namespace), kube.CoreV1().ConfigMaps(s.namespace)
	var made metav1.Object
	var err error
	if kind == "Secret" {
		made, err = secrets.Patch(s.Context(), name, types.MergePatchType, data, metav1.PatchOptions{})
	} else {
		made, err = configMaps.Patch(s.Context(), name, types.MergePatchType, data, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		if kind == "Secret" {
			o := &corev1.Secret{}
			s.must(json.Unmarshal(data, o))
			o.Name = name
			return create(s.T, secrets.Create, o)
		}
		o := &corev1.ConfigMap{}
		s.must(json.Unmarshal(data, o))
		o.Name = name
		return create(s.T, configMaps.Create, o)
	}
	s.must(err)
	return made
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func pairs(keysAndValues ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		out[keysAndValues[i]] = keysAndValues[i+1]
	}
	return out
}

// create creates a Deployment in another second than the sources that were written before, and waits for its pods, if they can start: what is
// written next is a change for them.
func (s *shop) create(d *appsv1.Deployment) *appsv1.Deployment {
	s.Helper()
	s.must(await.NextSecond(s.Context()))
	d = create(s.T, kube.AppsV1().Deployments(s.namespace).Create, d)
	if ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return d
	}
	_ = wait.PollUntilContextTimeout(s.Context(), 100*time.Millisecond, 15*time.Second, true, func(context.Context) (bool, error) {
		d = s.deployment(d.Name)
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas, nil
	})
	return d
}

func (s *shop) deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := kube.AppsV1().Deployments(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return d
}

func (s *shop) edit(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	return edit(s.T, kube.AppsV1().Deployments(s.namespace), name, change)
}

// until waits until a Deployment passes a check, and returns it.
func (s *shop) until(name, what string, check func(*appsv1.Deployment) error) *appsv1.Deployment {
	s.Helper()
	return await.Passes(s.T, name+" "+what, func(ctx context.Context) (*appsv1.Deployment, error) {
		return kube.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}, check)
}

// templates returns how many templates the Deployments of an app have had, or those of all apps. It first waits
// until the Deployment controller has made a ReplicaSet for each current template.
func (s *shop) templates(app string) int {
	s.Helper()
	o := metav1.ListOptions{}
	if app != "" {
		o.LabelSelector = "app=" + app
	}
	s.settled()
	list, err := kube.AppsV1().ReplicaSets(s.namespace).List(s.Context(), o)
	s.must(err)
	return len(list.Items)
}

// settled waits until the Deployment controller has seen the current template of each Deployment.
func (s *shop) settled() {
	s.Helper()
	await.Until(s.T, "the Deployment controller has seen each template", func(ctx context.Context) error {
		list, err := kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if d := &list.Items[i]; d.Status.ObservedGeneration < d.Generation {
				return fmt.Errorf("it has seen generation %d of %s, want %d", d.Status.ObservedGeneration, d.Name, d.Generation)
			}
		}
		return nil
	})
}

// told waits until there is an event about an object for a reason, and returns the messages of all.
func (s *shop) told(kind, name, reason string) (messages []string) {
	s.Helper()
	await.Until(s.T, fmt.Sprintf("there is an event %s about %s %s", reason, kind, name), func(ctx context.Context) error {
		selector := fmt.Sprintf("reason=%s,involvedObject.kind=%s,involvedObject.name=%s", reason, kind, name)
		list, err := kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		messages = nil
		for i := range list.Items {
			messages = append(messages, list.Items[i].Message)
		}
		if err == nil && len(messages) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	return messages
}

// The canary is restarted by every change of the sources that it reads. Once it is, the server has seen the change.
const canary = "canary"

func (s *shop) createCanary(sources ...ref) {
	s.Helper()
	o := single(canary, optional(sources...))
	o.Annotations = pairs(policy.ReloadAnnotation, "auto")
	s.create(o)
	s.view("deployment."+canary, applied)
}

// seen waits until the canary is restarted because of the last change of a source.
func (s *shop) seen(o metav1.Object) {
	s.Helper()
	s.view("deployment."+canary, applied, at(o))
}
