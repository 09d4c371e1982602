// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/generated/informers"
)

// config returns how to connect. In a pod, this is rest.InClusterConfig; elsewhere, see k8s.io/client-go/tools/clientcmd.
func config() *rest.Config {
	c, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Which workloads consume a Secret?
//
//nolint:testableexamples // it needs a cluster
func Example_list() {
	client := versioned.NewForConfigOrDie(config())
	list, err := client.ConfigdepV1alpha1().ConfigDependencies("shop").List(context.Background(), metav1.ListOptions{
		FieldSelector: "source=Secret/db",
	})
	if err != nil {
		log.Fatal(err)
	}
	for i := range list.Items {
		fmt.Println(list.Items[i].Spec.WorkloadRef.Kind, list.Items[i].Spec.WorkloadRef.Name, list.Items[i].Status.State)
	}
}

// Restart a workload, if its pods are known to be stale.
//
//nolint:testableexamples // it needs a cluster
func Example_reload() {
	client := versioned.NewForConfigOrDie(config())
	done, err := client.ConfigdepV1alpha1().ConfigDependencies("shop").Reload(context.Background(), "deployment.web", &v1alpha1.Reload{
		Spec: v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale, Reason: "password rotated"},
	}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Status.Triggered, done.Status.Message)
}

// Follow all workloads, with an informer. It goes on at another replica without missing anything.
//
//nolint:testableexamples // it needs a cluster
func Example_informer() {
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	factory := informers.NewSharedInformerFactory(versioned.NewForConfigOrDie(config()), 0)
	_, err := factory.Configdep().V1alpha1().ConfigDependencies().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			if d, ok := o.(*v1alpha1.ConfigDependency); ok {
				fmt.Println(d.Namespace, d.Name, d.Status.State, d.Status.Message)
			}
		},
	})
	if err != nil {
		log.Print(err)
		return
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	<-ctx.Done()
}
