// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// The CA of the aggregation layer and that of clients are replaced while clients list, watch and reload, as some distributions do every
// day: first both are trusted, and then the new one is used. kube-apiserver never stops to publish the old one, before it expires.
func TestAuthorities(t *testing.T) {
	t.Parallel() // most of the time it waits
	c := start(t, controlplane.Options{APIServerOnly: true})
	s := installed(t, c, install.Options{Race: install.RaceDetector})
	core, view := kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("default")
	labels := map[string]string{"app": "web"}
	_, err := core.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the workload is shown", func(ctx context.Context) error {
		_, err := view.Get(ctx, "deployment.web", metav1.GetOptions{})
		return err
	})
	pids := map[string]int{}
	for _, r := range s.Replicas {
		pids[r.Name()] = r.PID()
	}
	watched, err := view.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	asking := keepAsking(t, map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, err := view.List(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func(ctx context.Context) error {
			w, err := view.Watch(ctx, metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
		"reload": func(ctx context.Context) error {
			_, err := view.Reload(ctx, "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
	})

	dir := filepath.Join(c.Dir(), "pki")
	file := func(name string) []byte {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	published := func(key string, want int) {
		t.Helper()
		await.Until(t, "kube-apiserver publishes "+key, func(ctx context.Context) error {
			found, err := core.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
			if got := len(certs([]byte(found.Data[key]))); err == nil && got != want {
				err = fmt.Errorf("it has %d certificates, want %d", got, want)
			}
			return err
		})
	}
	clients, proxy := authority(t, "clients"), authority(t, "proxy")
	clientCA, proxyCA := file("ca.crt"), file("front-proxy-ca.crt")
	oldProxy := &pki.KeyPair{Cert: file("front-proxy-client.crt"), Key: file("front-proxy-client.key")}
	for _, r := range s.Replicas {
		knows(t, r, clients, false)
	}
	write("ca.crt", slices.Concat(clientCA, clients.BundlePEM()))
	write("front-proxy-ca.crt", slices.Concat(proxyCA, proxy.BundlePEM()))
	published("client-ca-file", 2)
	published("requestheader-client-ca-file", 2)
	for _, r := range s.Replicas {
		knows(t, r, clients, true)
	}

	pair, err := proxy.ClientCert("front-proxy-client")
	if err != nil {
		t.Fatal(err)
	}
	write("front-proxy-client.key", pair.Key)
	write("front-proxy-client.crt", pair.Cert)
	write("front-proxy-ca.crt", proxy.BundlePEM())
	asking.answers(20)
	// kube-apiserver would publish the old CA until it expires. What it still does with the old certificate is refused from now on.
	asking.lenient.Store(true)
	remove := []byte(fmt.Sprintf(`{"data": {"requestheader-client-ca-file": %q}}`, proxy.BundlePEM()))
	if _, err := core.CoreV1().ConfigMaps("kube-system").Patch(t.Context(), "extension-apiserver-authentication", types.MergePatchType, remove, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Replicas {
		isProxy(t, r, oldProxy, false)
		isProxy(t, r, pair, true)
	}
	asking.answers(20)
	asking.lenient.Store(false)
	asking.answers(100)
	published("requestheader-client-ca-file", 1)
	if _, err := core.AppsV1().Deployments("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata": {"labels": {"seen": "last"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; {
		select {
		case e, open := <-watched.ResultChan():
			if !open || e.Type == watch.Error {
				t.Fatalf("the first watch has ended: %v", e.Object)
			}
			seen = e.Object.(*v1alpha1.ConfigDependency).Labels["seen"] == "last"
		case <-time.After(await.Limit):
			t.Fatal("the first watch shows no change")
		}
	}
	asking.stop()
	for _, r := range s.Replicas {
		if r.PID() != pids[r.Name()] {
			t.Errorf("%s was restarted", r.Name())
		}
	}
}

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// knows waits until a replica accepts, or does not accept, the certificate of a client that comes without kube-apiserver.
func knows(t *testing.T, r *install.Replica, a *pki.Authority, want bool) {
	t.Helper()
	pair, err := a.ClientCert("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	accepts(t, r, pair, want)
}

// isProxy waits until a replica accepts, or does not accept, a certificate of kube-apiserver.
func isProxy(t *testing.T, r *install.Replica, pair *pki.KeyPair, want bool) {
	t.Helper()
	accepts(t, r, pair, want, "X-Remote-User", "ann", "X-Remote-Group", "system:masters")
}

func accepts(t *testing.T, r *install.Replica, pair *pki.KeyPair, want bool, header ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%s accepts a certificate: %t", r.Name(), want), func(ctx context.Context) error {
		config := rest.CopyConfig(r.AdminConfig())
		config.CertData, config.KeyData, config.CertFile, config.KeyFile = pair.Cert, pair.Key, "", ""
		list := versioned.NewForConfigOrDie(config).ConfigdepV1alpha1().RESTClient().Get().Resource("configdependencies").Param("limit", "1")
		for i := 0; i < len(header); i += 2 {
			list.SetHeader(header[i], header[i+1])
		}
		err := list.Do(ctx).Error()
		if refused := apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err); want && err != nil || !want && !refused {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

// asking is what clients ask all the while.
type asking struct {
	t       *testing.T
	stop    func()
	lenient atomic.Bool // requests may fail
	counts  []*atomic.Int64
}

// answers waits for further answers to each client.
func (a *asking) answers(more int64) {
	a.t.Helper()
	for _, count := range a.counts {
		before := count.Load()
		await.Until(a.t, "clients are answered", func(context.Context) error {
			if got := count.Load() - before; got < more {
				return fmt.Errorf("%d answers, want %d", got, more)
			}
			return nil
		})
	}
}

// keepAsking asks all the while until it is stopped. No request may fail, except as long as that is said.
func keepAsking(t *testing.T, ways map[string]func(context.Context) error) *asking {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &asking{t: t}
	var running sync.WaitGroup
	a.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(a.stop)
	for name, ask := range ways {
		answers := &atomic.Int64{}
		a.counts = append(a.counts, answers)
		running.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			failed := 0
			for ctx.Err() == nil {
				began, forgiven := time.Now(), a.lenient.Load()
				err := ask(ctx)
				switch forgiven = forgiven || a.lenient.Load(); {
				case ctx.Err() != nil:
				case err == nil:
					answers.Add(1)
				case forgiven:
					failed++
				default:
					t.Errorf("%s at %s: %v", name, began.Format("15:04:05.000"), err)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
			t.Logf("%s: %d answers, and %d requests were refused while kube-apiserver changed its certificate", name, answers.Load(), failed)
		})
	}
	return a
}
