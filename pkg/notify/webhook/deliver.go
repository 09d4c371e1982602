// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

const (
	// maxResponse is how many bytes of a response are read, so that the connection can be used again.
	maxResponse = 64 << 10
	// maxRetryAfter bounds for how long a destination can stop its worker.
	maxRetryAfter = 5 * time.Minute

	signatureHeader = "X-Hub-Signature-256"
)

// Run sends events until the context is done, and for the time of Drain those that are left. Then it ends at once: it
// aborts the current request, and the events that are still left are lost. It must be called once.
func (s *Sink) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "webhook", s.name))
	klog.FromContext(ctx).Info("Sending events")
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	var draining sync.WaitGroup
	draining.Go(func() {
		<-ctx.Done()
		sleep(sending, s.drain)
		abort()
	})
	for {
		e, more := s.queue.take(ctx, sending)
		if !more {
			break
		}
		switch result, err := s.deliver(sending, &e); result {
		case metrics.NotificationDelivered:
			metrics.Notifications(s.name, result, 1)
		default:
			s.lose(klog.FromContext(ctx), result, 1, err)
		}
	}
	abort()
	s.closeIdle()
	draining.Wait()
	s.lose(klog.FromContext(ctx), metrics.NotificationShutdown, s.queue.close(), nil)
}

// lose counts events that are lost, and logs one loss a minute for each result, and those of the end. The error, if any, must be free of secrets.
func (s *Sink) lose(logger klog.Logger, result string, n int, err error) {
	metrics.Notifications(s.name, result, n)
	if n > 0 && (s.logged[result].Allow() || result == metrics.NotificationShutdown) {
		logger.Error(err, "Lost events", "lost", n, "result", result)
	}
}

// deliver sends an event, with retries, and returns what became of it. The error is free of secrets.
func (s *Sink) deliver(ctx context.Context, e *notify.Event) (result string, err error) {
	body, err := s.render(e)
	if err != nil {
		return metrics.NotificationInvalid, err
	}
	delay := s.backoff.DelayFunc()
	for attempt := 1; ; attempt++ {
		if !sleep(ctx, time.Until(s.notBefore)) {
			return metrics.NotificationShutdown, nil
		}
		err := s.post(ctx, body)
		var answer statusError
		switch {
		case err == nil:
			return metrics.NotificationDelivered, nil
		case ctx.Err() != nil:
			return metrics.NotificationShutdown, nil
		case errors.As(err, &answer) && answer.final():
			return metrics.NotificationRejected, err
		case attempt == maxAttempts:
			return metrics.NotificationFailed, err
		}
		klog.FromContext(ctx).V(4).Info("Sending an event failed, will retry", "attempt", attempt, "reason", err.Error())
		if !sleep(ctx, delay()) {
			return metrics.NotificationShutdown, nil
		}
	}
}

// post sends one request. Its errors are free of secrets.
func (s *Sink) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil { // contains the URL
		return errors.New("the URL is invalid")
	}
	req.Header.Set("Content-Type", s.format.contentType)
	req.Header.Set("User-Agent", "configdep")
	if s.user != nil {
		password, _ := s.user.Password()
		req.SetBasicAuth(s.user.Username(), password)
	}
	if s.key != nil {
		mac := hmac.New(sha256.New, s.key)
		mac.Write(body)
		req.Header.Set(signatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	// Not with an http.Client: it follows redirects, and its errors contain the URL.
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return withoutSecrets(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponse) // the status counts, however the body ends
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		now := time.Now()
		s.notBefore = now.Add(retryAfter(resp.Header.Get("Retry-After"), now))
	}
	return statusError(resp.StatusCode)
}

// retryAfter returns how long to wait by the header Retry-After, which is a number of seconds or a date (RFC 9110,
// section 10.2.3). It returns zero for an invalid value, and at most maxRetryAfter.
func retryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 64)
	switch {
	case err == nil && seconds < uint64(maxRetryAfter/time.Second):
		return time.Duration(seconds) * time.Second
	case err == nil, errors.Is(err, strconv.ErrRange):
		return maxRetryAfter
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), maxRetryAfter)
}

// statusError is the status code of a response that is not a success. The text of the status is the destination's, so
// it is left out.
type statusError int

// Error implements error.
func (e statusError) Error() string {
	if e/100 == 3 {
		return fmt.Sprintf("the destination answered %d, a redirect: redirects are not followed", int(e))
	}
	return fmt.Sprintf("the destination answered %d %s", int(e), http.StatusText(int(e)))
}

// final reports whether the same request would fail again.
func (e statusError) final() bool {
	switch int(e) {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return e/100 != 5
	}
}

// proxyError is the status code with which a proxy refuses to connect to a destination.
type proxyError int

// Error implements error.
func (e proxyError) Error() string {
	return fmt.Sprintf("the proxy answered %d %s", int(e), http.StatusText(int(e)))
}

// proxyAnswered is called with the response of a proxy to a request for a connection. The transport would return the text
// of the status as the error, which is the proxy's.
func proxyAnswered(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return proxyError(resp.StatusCode)
	}
	return nil
}

// withoutSecrets returns an error with as much of the text of a transport's error as cannot contain the URL, or what a
// destination answered. It does not wrap the error.
func withoutSecrets(err error) error {
	var timeout net.Error
	var network *net.OpError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var proxy proxyError
	switch {
	case errors.As(err, &proxy):
		return proxy
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the destination did not answer in time")
	case errors.As(err, &network):
		return errors.New(network.Error())
	case errors.As(err, &certificate):
		return errors.New(certificate.Error())
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("the destination does not use TLS")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the destination closed the connection without an answer")
	default:
		return errors.New("the request failed; the cause is not logged, because it may contain the URL")
	}
}

// sleep waits, and returns false if the context is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
