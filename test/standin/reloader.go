// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// fieldManager is the name under which workloads are patched.
const fieldManager = "Reloader"

// Options are the options of Start.
type Options struct {
	Client kubernetes.Interface
	// Namespace is the only one that is watched; empty: all are.
	Namespace string
	Strategy  Strategy
	// Before, if set, is called before a change is handled, which waits until it returns.
	Before func(ctx context.Context)
}

// Restart is a restart that was made.
type Restart struct{ Kind, Namespace, Name string }

// Reloader is a running stand-in.
type Reloader struct {
	options Options
	ctx     context.Context // ends with Stop
	stop    func()

	mu       sync.Mutex
	handled  map[string]string // the versions of sources, by NAMESPACE/NAME and kind
	restarts []Restart
	err      error
}

// Start starts a stand-in, and returns when it watches. It runs until the context ends, or Stop is called.
func Start(ctx context.Context, o Options) (*Reloader, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &Reloader{options: o, ctx: ctx, handled: map[string]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace))
	r.stop = func() {
		cancel()
		factory.Shutdown()
	}
	var registered []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().ConfigMaps().Informer(), factory.Core().V1().Secrets().Informer()} {
		// Each informer calls its handler for one object after the other.
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { r.handle(sourceOf(o), sourceOf(o)) },
			UpdateFunc: func(before, after any) { r.handle(sourceOf(before), sourceOf(after)) },
		})
		if err != nil {
			r.stop()
			return nil, err
		}
		registered = append(registered, registration.HasSynced)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registered...) {
		r.stop()
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// Stop stops the stand-in, and returns what has failed.
func (r *Reloader) Stop() error {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Handled returns the version of a ConfigMap or Secret up to which everything has been done; empty: none.
func (r *Reloader) Handled(o metav1.Object) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handled[id(sourceOf(o))]
}

// Restarts returns all restarts, in order.
func (r *Reloader) Restarts() []Restart {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.restarts)
}

func id(s *source) string { return s.name + " " + s.GetNamespace() + "/" + s.GetName() }

func (r *Reloader) handle(before, after *source) {
	var err error
	if before.hash != after.hash {
		if r.options.Before != nil {
			r.options.Before(r.ctx)
		}
		err = r.restartUsers(r.ctx, after)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return // not done
	}
	r.handled[id(after)] = after.GetResourceVersion()
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("handling %s: %w", id(after), err))
	}
}

// restartUsers restarts the workloads that a change of a source concerns.
func (r *Reloader) restartUsers(ctx context.Context, s *source) error {
	workloads, err := r.workloads(ctx, s.GetNamespace())
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range workloads {
		c := s.container(w.meta.Annotations, w.template)
		if c == nil {
			continue
		}
		patch, err := r.options.Strategy.patch(s, c, time.Now())
		if patch == nil || err != nil {
			errs = append(errs, err)
			continue
		}
		if err := w.patch(ctx, w.meta.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			errs = append(errs, err)
			continue
		}
		r.mu.Lock()
		r.restarts = append(r.restarts, Restart{w.kind, w.meta.Namespace, w.meta.Name})
		r.mu.Unlock()
		errs = append(errs, r.tell(ctx, s, w))
	}
	return errors.Join(errs...)
}

// A workload is one that can be restarted.
type workload struct {
	kind     string
	meta     *metav1.ObjectMeta
	template *corev1.PodTemplateSpec
	patch    func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions) error
}

func (r *Reloader) workloads(ctx context.Context, namespace string) (all []workload, err error) {
	apps := r.options.Client.AppsV1()
	deployments, err1 := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
	daemonSets, err2 := apps.DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	statefulSets, err3 := apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	for i := range deployments.Items {
		o := &deployments.Items[i]
		all = append(all, workload{"Deployment", &o.ObjectMeta, &o.Spec.Template, patcher(apps.Deployments(namespace).Patch)})
	}
	for i := range daemonSets.Items {
		o := &daemonSets.Items[i]
		all = append(all, workload{"DaemonSet", &o.ObjectMeta, &o.Spec.Template, patcher(apps.DaemonSets(namespace).Patch)})
	}
	for i := range statefulSets.Items {
		o := &statefulSets.Items[i]
		all = append(all, workload{"StatefulSet", &o.ObjectMeta, &o.Spec.Template, patcher(apps.StatefulSets(namespace).Patch)})
	}
	return all, nil
}

func patcher[T any](patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)) func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions) error {
	return func(ctx context.Context, name string, of types.PatchType, data []byte, o metav1.PatchOptions) error {
		_, err := patch(ctx, name, of, data, o)
		return err
	}
}

// tell creates the event about a restart.
func (r *Reloader) tell(ctx context.Context, s *source, w workload) error {
	now := metav1.Now()
	_, err := r.options.Client.CoreV1().Events(w.meta.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", w.meta.Name, now.UnixNano()), Namespace: w.meta.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: w.kind, Namespace: w.meta.Namespace, Name: w.meta.Name, UID: w.meta.UID},
		Type:           corev1.EventTypeNormal, Reason: "Reloaded", Source: corev1.EventSource{Component: s.controller},
		Message: fmt.Sprintf("Changes detected in '%s' of type '%s' in namespace '%s', Updated '%s' of type '%s' in namespace '%s'",
			s.GetName(), s.name, s.GetNamespace(), w.meta.Name, w.kind, w.meta.Namespace),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	return err
}
