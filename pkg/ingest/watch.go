// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
)

// eventWatch is a watch of a stream. It gives its events to apply in the goroutine that reads them: handed to the reflector, each would wake two
// more goroutines, which costs more than most events do. The reflector only gets the error that ends the watch.
type eventWatch struct {
	answer io.ReadCloser
	stream *stream
	cancel context.CancelFunc // of the request
	apply  func(watch.EventType, *object)
	begun  sync.Once
	result chan watch.Event
}

func newEventWatch(answer io.ReadCloser, s *stream, cancel context.CancelFunc, apply func(watch.EventType, *object)) *eventWatch {
	return &eventWatch{answer: answer, stream: s, cancel: cancel, apply: apply, result: make(chan watch.Event, 1)}
}

// ResultChan implements watch.Interface. With it, the events begin to be applied.
func (w *eventWatch) ResultChan() <-chan watch.Event {
	w.begun.Do(func() { go w.read() })
	return w.result
}

// Stop implements watch.Interface. No event is applied afterwards: what the reflector lists then is newer.
func (w *eventWatch) Stop() {
	w.cancel()
	w.begun.Do(w.end)
	for range w.result {
	}
}

func (w *eventWatch) end() {
	_ = w.answer.Close()
	close(w.result)
}

// read applies the events until the answer ends.
func (w *eventWatch) read() {
	defer w.end()
	events := newEvents(w.answer, w.stream)
	defer events.window.clear()
	for {
		what, o, err := events.next()
		switch o := o.(type) {
		case *object:
			w.apply(what, o)
		case *metav1.Status:
			w.result <- watch.Event{Type: watch.Error, Object: o}
			return
		default:
			// After a connection that ended, the next watch goes on where this one was; after anything else, the reflector lists.
			if ended := errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err); !ended {
				w.result <- watch.Event{Type: watch.Error, Object: apierrors.NewClientErrorReporter(http.StatusInternalServerError, "WATCH", "ClientWatchDecoding").AsObject(err)}
			}
			return
		}
	}
}

// events are the events of a watch, as the API server sends them.
type events struct {
	window *window
	stream *stream
}

func newEvents(answer io.Reader, s *stream) *events { return &events{newWindow(answer, 4<<10), s} }

// next returns the next event with its object, which is a Status if the type is ERROR, and overwrites what it has read. After the last event,
// the error is io.EOF.
func (e *events) next() (watch.EventType, runtime.Object, error) {
	take := e.takeProtobuf
	if e.stream.json {
		take = e.takeJSON
	}
	event, raw, err := take()
	if err != nil {
		return "", nil, err
	}
	defer e.window.shrink()
	defer clear(raw)
	switch what := watch.EventType(event.Type); what {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
		o, err := e.stream.decodeAny(event.Object.Raw)
		if _, is := o.(*metav1.Status); err == nil && is != (what == watch.Error) {
			err = fmt.Errorf("a %s event came with a %T", what, o)
		}
		if err != nil {
			return "", nil, err
		}
		return what, o, nil
	}
	return "", nil, errNoEvent
}

var errNoEvent = errors.New("the response is not an event of a watch")

// takeProtobuf returns the next event, whose object is within the returned bytes. Each event is preceded by its size.
func (e *events) takeProtobuf() (event metav1.WatchEvent, raw []byte, err error) {
	size, err := e.window.take(4)
	if err != nil {
		return event, nil, err
	}
	if raw, err = e.window.take(int(binary.BigEndian.Uint32(size))); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return event, nil, err
	}
	err = eachField(raw, func(field protowire.Number, value []byte) error {
		switch field { // of meta/v1 WatchEvent
		case 1:
			event.Type = string(value)
		case 2:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == 1 { // of RawExtension
					event.Object.Raw = value
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		clear(raw)
	}
	return event, raw, err
}

// takeJSON returns the next event, and a copy of its object as the bytes that are to be overwritten.
func (e *events) takeJSON() (event metav1.WatchEvent, object []byte, err error) {
	raw, err := e.window.takeJSON()
	if err != nil {
		return event, nil, err
	}
	defer clear(raw)
	err = json.Unmarshal(raw, &event)
	if err != nil {
		clear(event.Object.Raw)
		err = errNoJSON // its own text may quote values
	}
	return event, event.Object.Raw, err
}
