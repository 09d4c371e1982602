// Package logging keeps out of logs what must not be there. It imports no other package of
// ours.
package logging

import (
	"context"

	"k8s.io/klog/v2"
)

// WithoutBodies returns a context in which client-go does not log the bodies of requests
// and answers, however verbose the program is: ours are Secrets.
func WithoutBodies(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil { // it logs nothing
		return ctx
	}
	return klog.NewContext(ctx, logger.WithSink(bodilessSink{logger.GetSink()}))
}

// bodilessSink ends the verbosity before the level at which client-go logs bodies.
type bodilessSink struct{ klog.LogSink }

func (s bodilessSink) Enabled(level int) bool { return level < 8 && s.LogSink.Enabled(level) }

func (s bodilessSink) WithValues(keysAndValues ...any) klog.LogSink {
	return bodilessSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s bodilessSink) WithName(name string) klog.LogSink {
	return bodilessSink{s.LogSink.WithName(name)}
}
