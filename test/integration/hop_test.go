// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
)

// newHopper returns a Hopper for replicas.
func newHopper(t *testing.T, replicas ...*install.Replica) *hop.Hopper {
	t.Helper()
	var addresses []string
	for _, r := range replicas {
		addresses = append(addresses, r.Address())
	}
	h, err := hop.New(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// through returns a client that connects through a Hopper.
func through(t *testing.T, h *hop.Hopper, r *install.Replica) configdepv1alpha1.ConfigdepV1alpha1Interface {
	t.Helper()
	return clientset(t, h.Config(r.AdminConfig())).ConfigdepV1alpha1()
}

// acquainted waits until each replica knows the versions of the others. A replica that has just started does not,
// for some seconds.
func acquainted(t *testing.T, replicas ...*install.Replica) {
	t.Helper()
	began := time.Now()
	for _, a := range replicas {
		for _, b := range replicas {
			await.Until(t, b.Name()+" knows versions of "+a.Name(), func(ctx context.Context) error {
				list, err := clientset(t, a.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies("default").List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				w, err := clientset(t, b.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies("default").Watch(ctx,
					metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(3))})
				if err != nil {
					return err
				}
				defer w.Stop()
				e, open := <-w.ResultChan()
				switch {
				case !open:
					return errors.New("the watch has ended")
				case e.Type == watch.Error:
					return apierrors.FromObject(e.Object)
				default:
					return nil
				}
			})
		}
	}
	t.Logf("acquainted after %v", time.Since(began))
}

// When replicas are replaced one after the other, as an update does, clients resume at another replica and need
// not list again.
func TestRollingRestartWithoutLists(t *testing.T) {
	t.Parallel()
	drains := install.ReplicaOptions{Args: []string{"--shutdown-delay-duration=2s"}}
	replicas := []*install.Replica{replica(t, "roll-0", drains), replica(t, "roll-1", drains)}
	acquainted(t, replicas...)
	namespace := newNamespace(t)
	h := newHopper(t, replicas...)
	f := &hop.Follower{Client: through(t, h, replicas[0]).ConfigDependencies(namespace)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer stop()
	n := 0
	follows := func() {
		t.Helper()
		n++
		create(t, kube.AppsV1().Deployments(namespace).Create, asleep(fmt.Sprint("app-", n)))
		await.Until(t, "the follower holds the current state", func(context.Context) error {
			if got := len(f.Copy()); got != n {
				return fmt.Errorf("the follower has %d objects, want %d", got, n)
			}
			return nil
		})
	}
	follows()
	for _, r := range replicas {
		if err := r.Terminate(); err != nil {
			t.Errorf("%s did not stop in order: %v", r.Name(), err)
		}
		follows()
		restart(t, r)
		acquainted(t, replicas...) // minReadySeconds waits for that
	}
	tally, err := f.Tally()
	if err != nil {
		t.Error(err)
	}
	if tally.Lists != 1 || tally.Watches < 2 {
		t.Errorf("%+v", tally)
	}
}

// A client that resumes at another replica, or from a list in pages, gets no outdated objects: kubectl wait would
// accept a past state.
func TestNothingOldIsReplayed(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	web := single("web", envFromSecret("db"))
	optedIn(web, "configdep.io/settle", "1s")
	create(t, deployments.Create, web)
	create(t, deployments.Create, asleep("again"))
	view(t, namespace, "deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "deployment.web", is(v1alpha1.StateInSync, "ContentApplied"), func(o *v1alpha1.ConfigDependency) error {
		if o.Status.LastReload == nil {
			return errors.New("not restarted yet")
		}
		return nil
	})
	before := view(t, namespace, "deployment.again")
	remove(t, deployments.Delete, "again")
	create(t, deployments.Create, asleep("again"))
	view(t, namespace, "deployment.again", func(o *v1alpha1.ConfigDependency) error {
		if o.UID == before.UID {
			return errors.New("still the previous object")
		}
		return nil
	})
	acquainted(t, server.Replicas...)
	for _, from := range everywhere {
		for _, limit := range []int64{0, 1} {
			list, err := from.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range everywhere {
				w, err := to.ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(t.Context(),
					metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(1))})
				if err != nil {
					t.Fatal(err)
				}
				for e := range w.ResultChan() {
					o, ok := e.Object.(*v1alpha1.ConfigDependency)
					if !ok {
						t.Errorf("from %s to %s: %v", from.name, to.name, apierrors.FromObject(e.Object))
						continue
					}
					// Only inputs beyond the watermark are sent again: here the last one.
					if e.Type == watch.Deleted || o.UID == before.UID || o.Status.State != v1alpha1.StateInSync && o.Name == "deployment.web" {
						t.Errorf("from %s to %s: %s %s, %s", from.name, to.name, e.Type, o.Name, o.Status.State)
					}
				}
			}
		}
	}
}

// kubectl wait continues when the replica that it watches is killed.
func TestKubectlWaitOutlivesReplicas(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromSecret("db")))
	view(t, namespace, "deployment.web")
	replicas := []*install.Replica{replica(t, "wait-0", install.ReplicaOptions{}), replica(t, "wait-1", install.ReplicaOptions{})}
	h := newHopper(t, replicas...)
	kubeconfig := kubeconfigOf(t, h.Config(replicas[0].AdminConfig()))
	waited := make(chan error, 1)
	go func() {
		out, err := cluster.Kubectl(t.Context(), "--kubeconfig="+kubeconfig, "-n", namespace, "wait", "--for=condition=SourcesResolved", "cfgdep/deployment.web", "--timeout=2m")
		if err != nil {
			err = errors.Join(err, errors.New(out))
		}
		waited <- err
	}()
	for _, r := range replicas {
		await.Until(t, "kubectl is watching", func(ctx context.Context) error {
			select {
			case err := <-waited:
				t.Fatalf("kubectl wait has ended: %v", err)
			default:
			}
			return watched(ctx, replicas)
		})
		r.Kill()
		restart(t, r)
	}
	write(t, namespace, "Secret/db", "password", "x")
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// watched returns an error unless a client is watching ConfigDependencies of some replica. A connection alone is no sign of
// that: it may be for an earlier request, which kubectl does not repeat.
func watched(ctx context.Context, replicas []*install.Replica) error {
	for _, r := range replicas {
		samples, err := scrape(ctx, r.Name(), r.AdminConfig())
		if err != nil {
			return err
		}
		for _, s := range samples {
			if s.Metric[model.MetricNameLabel] == "apiserver_longrunning_requests" && s.Metric["verb"] == "WATCH" &&
				s.Metric["resource"] == "configdependencies" && s.Value > 0 {
				return nil
			}
		}
	}
	return errors.New("no client is watching")
}

// kubeconfigOf writes a kubeconfig for a client.
func kubeconfigOf(t *testing.T, c *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hop"] = &clientcmdapi.Cluster{Server: c.Host, TLSServerName: c.ServerName, CertificateAuthorityData: c.CAData}
	config.AuthInfos["hop"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts["hop"] = &clientcmdapi.Context{Cluster: "hop", AuthInfo: "hop"}
	config.CurrentContext = "hop"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
