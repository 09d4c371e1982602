// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/await"
)

const (
	largeWorkloads, largeSources = 600, 100
	// largeTable is what kubectl accepts.
	largeTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	// asked is how often each request is made, all at once.
	asked = 100
)

// largeRequests are the requests whose responses cost the server most. Some are always refused.
var largeRequests = [...]struct {
	name, method, path, accept, body string
	refused                          bool
}{
	{"all objects", http.MethodGet, "/configdependencies", "application/json", "", false},
	{"all objects, indented", http.MethodGet, "/configdependencies?pretty=true", "application/json", "", false},
	{"all objects in YAML", http.MethodGet, "/configdependencies", "application/yaml", "", true},
	{"a table", http.MethodGet, "/configdependencies", largeTable, "", false},
	{"a table with objects", http.MethodGet, "/configdependencies?includeObject=Object", largeTable, "", true},
	{"a page with objects", http.MethodGet, "/configdependencies?includeObject=Object&limit=500", largeTable, "", false},
	{"metadata", http.MethodGet, "/configdependencies", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "", false},
	{"one object in YAML", http.MethodGet, "/namespaces/large/configdependencies/deployment.web-0", "application/yaml", "", true},
	{"pods", http.MethodGet, "/namespaces/large/configdependencies/deployment.pods/pods", "application/json", "", false},
	{"pods as a table", http.MethodGet, "/namespaces/large/configdependencies/deployment.pods/pods", largeTable, "", false},
	{"a trial", http.MethodPost, "/namespaces/large/configdependencies/deployment.web-1/reload?dryRun=All", "application/json", "{}", false},
}

// large attacks by the largest responses, each of them many times at once, beside which another user lists everything.
func (a *arena) large(t *testing.T) {
	namespace := newNamespace(t, "large")
	for _, role := range []string{"configdep-view", "configdep-reload", "configdep-pods"} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "large-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	var from []corev1.EnvFromSource
	for i := range largeSources {
		from = append(from, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("%s-%d", strings.Repeat("secret", 10), i)}, Optional: new(true),
		}})
	}
	create := func(name string, replicas, containers int) {
		t.Helper()
		d := deployment(name, "none")
		d.Spec.Replicas = new(int32(replicas))
		d.Spec.Template.Spec.Containers[0].EnvFrom = from
		for i := 1; i < containers; i++ {
			c := d.Spec.Template.Spec.Containers[0]
			c.Name = fmt.Sprintf("app-%d", i)
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, c)
		}
		if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("pods", 50, 10)
	for i := range largeWorkloads {
		create(fmt.Sprintf("web-%d", i), 0, 1)
	}
	api := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1()
	await.Until(t, "all workloads and their pods are shown", func(ctx context.Context) error {
		all, err := api.ConfigDependencies(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) != largeWorkloads+1 {
			err = fmt.Errorf("there are %d", len(all.Items))
		}
		if err != nil {
			return err
		}
		pods, err := api.ConfigDependencies(namespace).GetPods(ctx, "deployment.pods", metav1.GetOptions{})
		if err == nil && (len(pods.Pods) != 50 || pods.Summary.Current != 50) {
			err = fmt.Errorf("pods are missing, or not running")
		}
		return err
	})
	mallory, ann := as(t, "mallory"), as(t, "ann")
	a.takes(t, 128<<20, func() {
		var attack sync.WaitGroup
		var refused atomic.Int64
		var answered [len(largeRequests)]atomic.Int64
		for i, r := range largeRequests {
			for range asked {
				attack.Go(func() {
					switch status, err := mallory(t.Context(), r.method, r.path, r.accept, r.body); {
					case err != nil:
						t.Errorf("%s: %v", r.name, err)
					case status == http.StatusOK, status == http.StatusCreated:
						answered[i].Add(1)
					case status == http.StatusNotAcceptable, status == http.StatusTooManyRequests:
						refused.Add(1)
					default:
						t.Errorf("%s: status %d", r.name, status)
					}
				})
			}
		}
		ended := make(chan struct{})
		go func() {
			attack.Wait()
			close(ended)
		}()
		lists, slowest := 0, time.Duration(0)
		for attacked := true; attacked; lists++ {
			began := time.Now()
			// As kubectl get configdependencies -A does.
			status, err := ann(t.Context(), http.MethodGet, "/configdependencies?limit=500", largeTable, "")
			for err == nil && status == http.StatusTooManyRequests && time.Since(began) < await.Limit { // kubectl asks again, too
				status, err = ann(t.Context(), http.MethodGet, "/configdependencies?limit=500", largeTable, "")
			}
			if err != nil || status != http.StatusOK {
				t.Errorf("another user's list: status %d, error %v", status, err)
			}
			slowest = max(slowest, time.Since(began))
			select {
			case <-ended:
				attacked = false
			default:
			}
		}
		for i, r := range largeRequests {
			if n := answered[i].Load(); (n == 0) != r.refused {
				t.Errorf("%s: %d of %d requests were answered", r.name, n, asked)
			}
		}
		t.Logf("%d of %d requests were refused; each of %d lists of another user took at most %v",
			refused.Load(), asked*len(largeRequests), lists, slowest.Round(time.Millisecond))
	})
}

// as returns a function that requests something as a user and reads the response.
func as(t *testing.T, user string) func(ctx context.Context, method, path, accept, body string) (int, error) {
	t.Helper()
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"readers", "system:authenticated"}}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, method, path, accept, body string) (int, error) {
		return request(ctx, http, config.Host, method, path, accept, body)
	}
}

func request(ctx context.Context, client *http.Client, host, method, path, accept, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, host+"/apis/configdep.io/v1alpha1"+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}
