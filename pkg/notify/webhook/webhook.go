// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook sends events about workloads over HTTP, to receivers of CloudEvents and to the incoming webhooks of
// chats. Each Sink has one destination, one bounded queue and one worker, so that a slow destination delays neither
// restarts nor other destinations.
//
// The URL of a chat is a credential. Nothing in this package logs it, returns it in an error or counts by it; the same
// holds for its parts, for keys, and for what a destination answers, which may repeat them. Only host names and
// addresses appear, in errors of connections.
package webhook

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

const (
	// DefaultTimeout limits a request, from connecting to the end of the response.
	DefaultTimeout = 10 * time.Second
	// DefaultSource is the source of CloudEvents.
	DefaultSource = "/configdep"

	// Limits of an event, in bytes. Texts of annotations, which may be far longer, become part of messages.
	maxMessage = 2048
	maxTrigger = 512
	maxUser    = 512

	// Limits of what is configured, in bytes.
	maxURL    = 4096
	maxKey    = 4096
	maxSource = 1024

	// The first request is followed by up to seven more, within about two minutes.
	maxAttempts = 8
)

// Config is a destination, and which events are sent to it.
type Config struct {
	// Name identifies the destination in logs and metrics. It must be a DNS label.
	Name string
	// URL is where events are sent, with POST. A user and a password in it are sent as basic authentication.
	URL string
	// Format is the form in which events are sent.
	Format Format
	// Key signs the body, with the format generic only. Nil: the body is not signed.
	Key []byte
	// Source is the source attribute of CloudEvents, a URI reference that tells clusters apart. Only with the format
	// generic. Empty: DefaultSource.
	Source string
	// Cluster is the name of the cluster, for templates; it may be empty.
	Cluster string
	// Template is a text/template for the text of a message, executed with a Text. Not with the format generic. Empty:
	// DefaultTemplate.
	Template string
	// Events are the events that are sent; empty: all.
	Events []notify.What
	// Namespaces are the names of the namespaces whose events are sent; empty: all.
	Namespaces []string
	// Timeout limits a request; zero: DefaultTimeout.
	Timeout time.Duration
	// Drain is for how long Run goes on, once its context is done, to send the events that are left. Zero: not at all.
	Drain time.Duration
	// Proxy is the URL of the proxy through which requests are sent. A user and a password in it are sent to the proxy as
	// basic authentication. Empty: the proxy of the environment, if there is one.
	Proxy string
	// Transport sends the requests; nil: one that uses the proxy and the CAs of the system. It must not follow redirects,
	// and excludes a Proxy.
	Transport http.RoundTripper
}

// Sink sends events to one destination, in their order.
type Sink struct {
	name       string
	url        string
	user       *url.Userinfo
	format     format
	key        []byte
	source     string
	cluster    string
	template   *messageTemplate
	events     sets.Set[notify.What]
	namespaces sets.Set[string]
	timeout    time.Duration
	drain      time.Duration
	transport  http.RoundTripper
	closeIdle  func()
	backoff    wait.Backoff

	queue  *queue
	logged map[string]*rate.Limiter // of losses in the log, by result
	// notBefore is the earliest time of the next request, by a Retry-After. Only the worker uses it.
	notBefore time.Time
}

// FieldError says what a field of a Config has to be. It contains no value of the configuration, other than parts of a
// template, as any may be a secret in the wrong place.
type FieldError struct {
	// Field is the name of the field, with an index if it is a list: name, url, events[0].
	Field   string
	Problem string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

func wrong(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Validate returns everything that is wrong with a configuration.
func (c *Config) Validate() []*FieldError {
	_, errs := c.sink()
	return errs
}

// New returns a sink, which sends nothing until Run. An error names everything that is wrong with the configuration.
func New(c Config) (*Sink, error) {
	s, wrongs := c.sink()
	if len(wrongs) > 0 {
		var errs []error
		for _, err := range wrongs {
			errs = append(errs, err)
		}
		return nil, fmt.Errorf("webhook %q: %w", s.name, utilerrors.NewAggregate(errs))
	}
	// From the start, so that the first loss is an increase.
	for _, result := range metrics.NotificationResults() {
		metrics.Notifications(s.name, result, 0)
	}
	return s, nil
}

// sink returns the sink of a configuration, and what is wrong with it.
func (c *Config) sink() (s *Sink, errs []*FieldError) {
	s = &Sink{
		name: c.Name, key: slices.Clone(c.Key), source: c.Source, cluster: c.Cluster, timeout: c.Timeout, drain: c.Drain,
		events: sets.New(c.Events...), namespaces: sets.New(c.Namespaces...), closeIdle: func() {},
		backoff: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: maxAttempts, Cap: 30 * time.Second},
		queue:   newQueue(), logged: map[string]*rate.Limiter{},
	}
	for _, result := range metrics.NotificationResults() {
		s.logged[result] = rate.NewLimiter(rate.Every(time.Minute), 1)
	}
	if len(validation.IsDNS1123Label(c.Name)) > 0 {
		s.name = ""
		errs = append(errs, wrong("name", "must be a DNS label: at most 63 lower case letters, digits and hyphens"))
	}
	for _, err := range []*FieldError{s.setURL(c.URL), s.setFormat(c), s.setTransport(c)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.validateFilters()...)
	switch {
	case s.timeout < 0:
		errs = append(errs, wrong("timeout", "must be positive, or zero for the default, %v", DefaultTimeout))
	case s.timeout == 0:
		s.timeout = DefaultTimeout
	}
	return s, errs
}

// setURL sets the URL. The errors of net/url contain it, so they are not returned.
func (s *Sink) setURL(text string) *FieldError {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return wrong("url", "must be https://HOST/PATH or http://HOST/PATH, at most %d bytes, without spaces and line ends", maxURL)
	}
	s.user, u.User = u.User, nil
	s.url = u.String()
	return nil
}

// setFormat sets the format, and what depends on it.
func (s *Sink) setFormat(c *Config) *FieldError {
	f, found := formats[c.Format]
	if !found {
		return wrong("format", "must be one of %s", joined(Formats()))
	}
	s.format = f
	if f.message == nil {
		return s.validateCloudEvents(c)
	}
	if c.Key != nil {
		return wrong("key", "requires the format %s: the format %s has no signature", Generic, c.Format)
	}
	if c.Source != "" {
		return wrong("source", "requires the format %s: the format %s has no source", Generic, c.Format)
	}
	var err error
	if s.template, err = parseTemplate(c.Template, &s.format, c.Cluster); err != nil {
		return wrong("template", "%v", err)
	}
	return nil
}

// setTransport sets what sends the requests.
func (s *Sink) setTransport(c *Config) *FieldError {
	if c.Transport != nil {
		if c.Proxy != "" {
			return wrong("proxy", "requires the default transport")
		}
		s.transport = c.Transport
		return nil
	}
	// Compression is off because what is bounded is the size of the decompressed response.
	own := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, OnProxyConnectResponse: proxyAnswered}
	if c.Proxy != "" {
		proxy, err := url.Parse(c.Proxy) // an error that contains it
		if err != nil || len(c.Proxy) > maxURL || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) || proxy.Hostname() == "" {
			return wrong("proxy", "must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, at most %d bytes, without spaces and line ends", maxURL)
		}
		own.Proxy = http.ProxyURL(proxy)
	}
	s.transport, s.closeIdle = utilnet.SetTransportDefaults(own), own.CloseIdleConnections
	return nil
}

func (s *Sink) validateCloudEvents(c *Config) *FieldError {
	if c.Key != nil && (len(c.Key) == 0 || len(c.Key) > maxKey) {
		return wrong("key", "must have 1 to %d bytes; without a key, nothing is signed", maxKey)
	}
	if c.Template != "" {
		return wrong("template", "requires a format other than %s, which has no text", Generic)
	}
	if s.source == "" {
		s.source = DefaultSource
	}
	if _, err := url.Parse(s.source); err != nil || len(s.source) > maxSource { // an error that contains it
		return wrong("source", "must be a URI reference, such as %s, at most %d bytes", DefaultSource, maxSource)
	}
	return nil
}

func (c *Config) validateFilters() (errs []*FieldError) {
	known := notify.Whats()
	for i, what := range c.Events {
		if !slices.Contains(known, what) {
			errs = append(errs, wrong(fmt.Sprintf("events[%d]", i), "must be one of %s", joined(known)))
		}
	}
	for i, namespace := range c.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			errs = append(errs, wrong(fmt.Sprintf("namespaces[%d]", i), "must be the name of a namespace; patterns are not supported"))
		}
	}
	return errs
}

func joined[T ~string](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return strings.Join(texts, ", ")
}

// Notify implements notify.Sink. An event that does not fit into the queue is lost.
func (s *Sink) Notify(e notify.Event) {
	if s.events.Len() > 0 && !s.events.Has(e.What) || s.namespaces.Len() > 0 && !s.namespaces.Has(e.Workload.Namespace) {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Message, e.Trigger, e.RequestedBy = clip(e.Message, maxMessage), clip(e.Trigger, maxTrigger), clip(e.RequestedBy, maxUser)
	if lost := s.queue.put(e); lost != "" {
		s.lose(klog.Background().WithValues("webhook", s.name), lost, 1, nil)
	}
}
