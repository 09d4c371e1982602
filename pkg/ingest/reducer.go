package ingest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// newReducer wraps a client so that nothing behind it sees an API object: each is
// reduced as soon as it is decoded. Reflectors keep a temporary store during a list and
// print objects that they cannot handle; neither may hold a Secret.
func newReducer[L runtime.Object](client resource[L], only metav1.ListOptions, reduce func(metav1.Object) *object) cache.ListerWatcher {
	narrow := func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = only.LabelSelector, only.FieldSelector
	}
	return paged{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			narrow(&options)
			inPages(&options)
			list, err := client.List(withoutBodies(ctx), options)
			if err != nil {
				return nil, err
			}
			return reduceList(list, reduce)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			narrow(&options)
			w, err := client.Watch(withoutBodies(ctx), options)
			if err != nil {
				return nil, err
			}
			return reduceWatch(w, reduce), nil
		},
	}}
}

// reduceWatch passes the events of a watch on. Unlike watch.Filter it ends when it is
// stopped also while nobody takes an event.
func reduceWatch(in watch.Interface, reduce func(metav1.Object) *object) watch.Interface {
	events := make(chan watch.Event)
	out := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer in.Stop()
		for {
			select {
			case event, open := <-in.ResultChan():
				if !open {
					return
				}
				select {
				case events <- reduceEvent(event, reduce):
				case <-out.StopChan():
					return
				}
			case <-out.StopChan():
				return
			}
		}
	}()
	return out
}

func reduceEvent(event watch.Event, reduce func(metav1.Object) *object) watch.Event {
	if event.Type == watch.Error {
		return event // a Status
	}
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return watch.Event{Type: watch.Error, Object: unexpected(event.Object)}
	}
	event.Object = reduce(m)
	return event
}

// reduceList returns a list of objects with the version and the continue token of the
// original.
func reduceList(list runtime.Object, reduce func(metav1.Object) *object) (runtime.Object, error) {
	original, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of a %T: %w", list, err)
	}
	out := &metav1.List{ListMeta: metav1.ListMeta{
		ResourceVersion: original.GetResourceVersion(),
		Continue:        original.GetContinue(),
	}}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		m, err := meta.Accessor(item)
		if err != nil {
			return fmt.Errorf("reading the metadata of a %T: %w", item, err)
		}
		out.Items = append(out.Items, runtime.RawExtension{Object: reduce(m)})
		return nil
	})
	return out, err
}

// unexpected tells of an object without metadata by its type alone.
func unexpected(o runtime.Object) *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("watch event with an unexpected object of type %T", o),
	}
}
