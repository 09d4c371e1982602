// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/generated/informers"
	"github.com/configdep/configdep/test/await"
)

// crowdSize is more than two pages of the pager.
const crowdSize, pageSize = 130, 50

// newCrowd creates a namespace with many workloads, none of which has pods.
func newCrowd(t *testing.T) string {
	t.Helper()
	namespace := newNamespace(t)
	jobs := kube.BatchV1().CronJobs(namespace)
	names := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range names {
				if _, err := jobs.Create(t.Context(), suspended(i), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range crowdSize {
		names <- i
	}
	close(names)
	wg.Wait()
	for _, where := range everywhere {
		await.Until(t, where.name+" shows all of them", func(ctx context.Context) error {
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) != crowdSize {
				err = fmt.Errorf("got %d", len(list.Items))
			}
			return err
		})
	}
	return namespace
}

func suspended(i int) *batchv1.CronJob {
	o := cronJob(fmt.Sprintf("job-%04d", i), envFromSecret("db"))
	o.Spec.Suspend = new(true)
	return o
}

// The variables with which a test runs this program again, as an informer with other features of client-go, which
// a process reads once.
const (
	informerKubeconfig = "TEST_INFORMER_KUBECONFIG"
	informerNamespace  = "TEST_INFORMER_NAMESPACE"
	informerObjects    = "TEST_INFORMER_OBJECTS"
)

// informersInTurn is how often that program runs an informer.
const informersInTurn = 5

// beInformer runs an informer until it holds a number of objects, several times.
func beInformer() error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(informerKubeconfig))
	if err != nil {
		return err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(os.Getenv(informerObjects))
	if err != nil {
		return err
	}
	for range informersInTurn {
		if err := inform(client, os.Getenv(informerNamespace), want); err != nil {
			return err
		}
	}
	return nil
}

func inform(client versioned.Interface, namespace string, want int) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), await.Limit, errors.New("the informer does not hold all objects"))
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Configdep().V1alpha1().ConfigDependencies().Informer()
	factory.StartWithContext(ctx)
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return informer.HasSynced() && len(informer.GetStore().ListKeys()) == want, nil
	})
	cancel()
	factory.Shutdown()
	return err
}

// Informers hold the current objects, whether they start with a list or with a watch. These informers check, and
// panic otherwise, that the objects of a watch equal the list at the same version, while everything changes.
func TestInformersAreConsistent(t *testing.T) {
	t.Parallel()
	namespace := newCrowd(t)
	ctx, stop := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	defer changing.Wait()
	defer stop()
	changing.Go(func() {
		jobs := kube.BatchV1().CronJobs(namespace)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"i":"%d"}}}`, i)
			_, err := jobs.Patch(ctx, fmt.Sprintf("job-%04d", i%crowdSize), "application/merge-patch+json", patch, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for _, watchList := range []string{"true", "false"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true", "KUBE_FEATURE_WatchListClient="+watchList,
			informerKubeconfig+"="+cluster.Kubeconfig(), informerNamespace+"="+namespace, informerObjects+"="+strconv.Itoa(crowdSize))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("with WatchListClient %s: %v\n%s", watchList, err, out)
		}
		if checks := strings.Count(string(out), "data consistency check is enabled"); watchList == "true" && checks < informersInTurn {
			t.Errorf("the informers have only made %d checks:\n%s", checks, out)
		}
	}
}

// The pager of client-go reads a list page by page. From one replica, it gets exactly the objects that existed at
// the start; from any replica, all objects that exist all the time.
func TestPagesWhileEverythingChanges(t *testing.T) {
	t.Parallel()
	acquainted(t, server.Replicas...)
	namespace := newCrowd(t)
	h := newHopper(t, server.Replicas...)
	jobs := kube.BatchV1().CronJobs(namespace)
	var want []string
	for i := range crowdSize {
		want = append(want, fmt.Sprintf("cronjob.job-%04d", i))
	}
	for round, where := range append(everywhere, endpoint{"any replica", nil, clientset(t, h.Config(server.Replicas[0].AdminConfig()))}) {
		exact := where.Config != nil
		var got, versions []string
		pages := 0
		p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(ctx, o)
			if err != nil {
				return nil, err
			}
			versions = append(versions, list.ResourceVersion)
			// Objects that were listed are deleted, and objects that are yet to be listed are deleted and created.
			gone := fmt.Sprintf("job-%04d", round*10+pages)
			last := fmt.Sprintf("job-%04d", crowdSize-1-round*10-pages)
			pages++
			h.Cut()
			remove(t, jobs.Delete, gone)
			remove(t, jobs.Delete, last)
			viewGone(t, namespace, "cronjob."+gone)
			viewGone(t, namespace, "cronjob."+last)
			return list, nil
		})
		p.PageSize = pageSize
		err := p.EachListItem(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
			got = append(got, o.(*v1alpha1.ConfigDependency).Name)
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", where.name, err)
		}
		if pages < 3 || len(slices.Compact(versions)) != 1 {
			t.Errorf("%s: %d pages with versions %v", where.name, pages, versions)
		}
		always := slices.DeleteFunc(slices.Clone(want), func(name string) bool {
			i, err := strconv.Atoi(strings.TrimPrefix(name, "cronjob.job-"))
			return err != nil || !exact && (i >= round*10 && i < round*10+pages || i > crowdSize-1-round*10-pages && i <= crowdSize-1-round*10)
		})
		if missing := minus(always, got); len(missing) > 0 {
			t.Errorf("%s: missing objects: %v", where.name, missing)
		}
		if extra := minus(got, want); len(extra) > 0 || len(got) != len(slices.Compact(slices.Sorted(slices.Values(got)))) {
			t.Errorf("%s: extra or duplicate objects: %v", where.name, extra)
		}
		for i := range pages {
			for _, n := range []int{round*10 + i, crowdSize - 1 - round*10 - i} {
				create(t, jobs.Create, suspended(n))
				view(t, namespace, fmt.Sprintf("cronjob.job-%04d", n))
			}
		}
	}
}

// minus returns the elements of a that are not in b.
func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
