// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"encoding/base64"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// apiService returns the APIService as the leader applies it.
func apiService(bundle string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": ours, "ownerReferences": []any{
			map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "configdep:registration", "uid": "1"},
		}},
		"spec": map[string]any{
			"group": "configdep.io", "version": "v1alpha1", "insecureSkipTLSVerify": false, "groupPriorityMinimum": int64(100), "versionPriority": int64(15),
			"service": map[string]any{"namespace": home, "name": "configdep", "port": int64(443)}, "caBundle": bundle,
		},
	}}
}

// configMap returns the ConfigMap as the manifests create it, or with entries.
func configMap(data map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": home, "name": "configdep-serving-ca", "resourceVersion": "1"},
	}}
	if data != nil {
		o.Object["data"] = data
	}
	return o
}

var (
	registration = Registration{
		Name: ours, Group: "configdep.io", Version: "v1alpha1", Service: Service{Namespace: home, Name: "configdep", Port: 443},
		Ready: func(context.Context) error { return nil },
		Owner: func(context.Context) (metav1.OwnerReference, error) {
			return metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "configdep:registration", UID: "1"}, nil
		},
		Repaired: func(*unstructured.Unstructured) {},
	}
	everyTarget = Targets{APIService: registration, Namespace: home, ConfigMap: "configdep-serving-ca"}
)

// newDynamic returns a fake client, in which an apply replaces the object.
func newDynamic(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		APIServices: "APIServiceList", configMaps: "ConfigMapList",
	}, objects...)
	client.PrependReactor("patch", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(action.(clienttesting.PatchAction).GetPatch()); err != nil {
			return true, nil, err
		}
		err := client.Tracker().Update(APIServices, o, "")
		if apierrors.IsNotFound(err) {
			err = client.Tracker().Create(APIServices, o, "")
		}
		return true, o, err
	})
	return client
}

// inCluster returns the bundle in an object.
func inCluster(t *testing.T, client *dynamicfake.FakeDynamicClient, resource schema.GroupVersionResource, object string) (bundle string) {
	t.Helper()
	namespace := ""
	if resource == configMaps {
		namespace = home
	}
	o, err := client.Resource(resource).Namespace(namespace).Get(t.Context(), object, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if resource == configMaps {
		bundle, _, _ = unstructured.NestedString(o.Object, "data", "ca.crt")
		return bundle
	}
	bundle, _, _ = unstructured.NestedString(o.Object, "spec", "caBundle")
	decoded, _ := base64.StdEncoding.DecodeString(bundle)
	return string(decoded)
}

func patches(client *dynamicfake.FakeDynamicClient) (n int) {
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

func TestTheBundleIsPutEverywhere(t *testing.T) {
	bundle := next(t, usual, Content{}, time.Now()).Bundle
	other := next(t, usual, Content{}, time.Now())
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService("***"), apiServiceOfAnother(), configMap(nil))
		b := NewBundles(client, everyTarget)
		background(t, b.Run)
		synctest.Wait()
		if n := patches(client); n > 0 {
			t.Errorf("got %d patches before there is a bundle", n)
		}
		b.Set([]byte(bundle))
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, inCluster(t, client, APIServices, ours)); diff != "" {
				t.Errorf("APIService (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, inCluster(t, client, configMaps, "configdep-serving-ca")); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
		}
		check(bundle)
		if diff := cmp.Diff("", inCluster(t, client, APIServices, "v1.other.io")); diff != "" {
			t.Errorf("another APIService (-want +got):\n%s", diff)
		}
		if n := patches(client); n != 2 {
			t.Errorf("got %d patches", n)
		}
		// Changes of the bundle are corrected immediately.
		replace := func(resource schema.GroupVersionResource, o *unstructured.Unstructured) {
			t.Helper()
			o.SetResourceVersion("1")
			if _, err := client.Resource(resource).Namespace(o.GetNamespace()).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		replace(APIServices, apiService("b3RoZXI="))
		check(bundle)
		for _, data := range []map[string]any{nil, {}, {"ca.crt": "other"}, {"note": "mine"}} {
			replace(configMaps, configMap(data))
			check(bundle)
		}
		noted, err := client.Resource(configMaps).Namespace(home).Get(t.Context(), "configdep-serving-ca", metav1.GetOptions{})
		if note, _, _ := unstructured.NestedString(noted.Object, "data", "note"); err != nil || note != "mine" {
			t.Errorf("another entry of the ConfigMap = %q (error %v)", note, err)
		}
		b.Set([]byte(other.Bundle))
		check(other.Bundle)
		// The APIService is created again, but not the ConfigMap, which the manifests create.
		if err := client.Resource(APIServices).Delete(t.Context(), ours, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Resource(configMaps).Namespace(home).Delete(t.Context(), "configdep-serving-ca", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := client.Resource(configMaps).Namespace(home).Create(t.Context(), configMap(nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		check(other.Bundle)
	})
}

func apiServiceOfAnother() *unstructured.Unstructured {
	o := apiService("")
	o.SetName("v1.other.io")
	return o
}

// Without a right, or while another client writes, patches are retried at growing intervals.
func TestARightIsMissing(t *testing.T) {
	c := next(t, usual, Content{}, time.Now())
	for _, verb := range []string{"list", "patch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newDynamic(apiService(""))
				var mu sync.Mutex
				refuse, refused := true, 0
				client.PrependReactor(verb, "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					if refuse {
						refused++
						return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, ours, nil)
					}
					return false, nil, nil
				})
				b := NewBundles(client, Targets{APIService: registration})
				b.Set([]byte(c.Bundle))
				background(t, b.Run)
				<-time.After(20 * time.Second)
				mu.Lock()
				if refused < 3 || refused > 100 {
					t.Errorf("the patch was tried %d times", refused)
				}
				refuse = false
				mu.Unlock()
				<-time.After(time.Minute / 2)
				synctest.Wait()
				if diff := cmp.Diff(c.Bundle, inCluster(t, client, APIServices, ours)); diff != "" {
					t.Errorf("corrected object (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Two programs that want different bundles do not keep the cluster busy.
func TestNoRaceForTheBundle(t *testing.T) {
	c := next(t, usual, Content{}, time.Now())
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService(""))
		client.PrependReactor("patch", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
			// The other program writes at the same moment.
			o := apiService("b3RoZXI=")
			return true, o, client.Tracker().Update(APIServices, o, "")
		})
		b := NewBundles(client, Targets{APIService: registration})
		b.Set([]byte(c.Bundle))
		background(t, b.Run)
		<-time.After(50 * time.Second)
		if n := patches(client); n < 5 || n > 25 {
			t.Errorf("got %d patches in 50 s", n)
		}
	})
}
