// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// mostVerbose is the last level before client-go begins to log bodies.
const mostVerbose = 7

// Apply configures the logger of the program, once, before anything is logged. That logger and those derived from it
// log nothing above level 7, whatever the configuration says or is changed to later. (In text, klog.V(8).Infof and the
// like still do; nothing logs bodies by them.) Apply returns an error if bodies could be logged in another way.
func Apply(c *logsapi.LoggingConfiguration, gates featuregate.FeatureGate) error {
	switch {
	case !gates.Enabled(logsapi.ContextualLogging):
		return errors.New("--feature-gates=ContextualLogging=false is not supported: the log would contain Secrets at a high verbosity")
	case strings.Contains(os.Getenv("GODEBUG"), "http2debug="):
		return errors.New("GODEBUG=http2debug is not supported: the log would contain tokens and Secrets")
	case c.Options.Text.InfoBufferSize.Value() > 0 || c.Options.JSON.InfoBufferSize.Value() > 0:
		// klog has no way to keep what flushes the buffer when its logger is replaced.
		return errors.New("--log-text-info-buffer-size and --log-json-info-buffer-size are not supported")
	}
	if err := logsapi.ValidateAndApply(c, gates); err != nil {
		return err
	}
	limit()
	return nil
}

// limit replaces the logger of the program by one that ends at mostVerbose.
func limit() {
	logger := klog.Background()
	options := []klog.LoggerOption{klog.ContextualLogger(true)}
	if text, ok := logger.GetSink().(textlogger.KlogBufferWriter); ok {
		options = append(options, klog.WriteKlogBuffer(text.WriteKlogBuffer))
	}
	klog.SetLoggerWithOptions(logger.WithSink(limited{below(logger.GetSink(), 1)}), options...)
	slog.SetDefault(slog.New(logr.ToSlogHandler(klog.Background())))
}

// limited is a sink that ends at mostVerbose. The sink behind it takes the caller of limited for its own.
type limited struct{ sink klog.LogSink }

// Init implements logr.LogSink, as are the methods below.
func (l limited) Init(info klog.RuntimeInfo) { l.sink.Init(info) }

func (l limited) Enabled(level int) bool { return level <= mostVerbose && l.sink.Enabled(level) }

func (l limited) Info(level int, message string, keysAndValues ...any) {
	l.sink.Info(level, message, keysAndValues...)
}

func (l limited) Error(err error, message string, keysAndValues ...any) {
	l.sink.Error(err, message, keysAndValues...)
}

func (l limited) WithValues(keysAndValues ...any) klog.LogSink {
	return limited{l.sink.WithValues(keysAndValues...)}
}

func (l limited) WithName(name string) klog.LogSink { return limited{l.sink.WithName(name)} }

// WithCallDepth implements logr.CallDepthLogSink.
func (l limited) WithCallDepth(depth int) klog.LogSink { return limited{below(l.sink, depth)} }

// below returns a sink that takes a caller further up for its own, by a number of frames.
func below(sink klog.LogSink, frames int) klog.LogSink {
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		return deep.WithCallDepth(frames)
	}
	return sink
}
