// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HTTP sends a request. Files with credentials are read for each one, so that they may change.
type HTTP struct {
	Method string
	URL    *url.URL
	Body   string // in JSON
	// Accept are the status codes that mean success. None: 200 to 299.
	Accept []Codes
	// Timeout is how long each try may take, with its answer.
	Timeout time.Duration

	// BasicAuth is a directory with the files username and password.
	BasicAuth string
	// CAFile has the certificates of authorities to trust instead of those of the system.
	CAFile string
	// Insecure skips the check of the certificate of the application.
	Insecure bool
}

// Codes are status codes from the first to the last.
type Codes struct{ First, Last int }

// ParseCodes parses status codes: "200,202-204".
func ParseCodes(text string) (out []Codes, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		c := Codes{}
		var errs [2]error
		c.First, errs[0] = strconv.Atoi(first)
		c.Last, errs[1] = strconv.Atoi(last)
		if errs != [2]error{} || c.First < 100 || c.Last > 599 || c.First > c.Last {
			return nil, fmt.Errorf("%q: it must be codes and ranges from 100 to 599, as in 200,202-204", text)
		}
		out = append(out, c)
	}
	return out, nil
}

func (h *HTTP) String() string {
	u := *h.URL
	u.User, u.RawQuery = nil, ""
	return h.Method + " " + u.String()
}

// maxAnswer is how much of an answer is read, so that the connection can end well.
const maxAnswer = 64 << 10

// Do sends the request once.
func (h *HTTP) Do(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout, fmt.Errorf("no answer within %v", h.Timeout))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, h.Method, h.URL.String(), strings.NewReader(h.Body))
	if err != nil {
		return err
	}
	if h.Body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := h.authorize(r); err != nil {
		return err
	}
	transport, err := h.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	// A transport follows no redirects, and does not parse where they lead.
	answer, err := transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else {
			err = unquoted(err)
		}
		return fmt.Errorf("%s: %w", h, err)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	if err := answer.Body.Close(); err != nil {
		return fmt.Errorf("%s: %w", h, err)
	}
	if accept := h.Accept; len(accept) == 0 && answer.StatusCode/100 == 2 || slices.ContainsFunc(accept, func(c Codes) bool {
		return answer.StatusCode >= c.First && answer.StatusCode <= c.Last
	}) {
		return nil
	}
	return fmt.Errorf("%s: the answer is %d %s", h, answer.StatusCode, http.StatusText(answer.StatusCode))
}

// errNoHTTP takes the place of errors that quote what they could not parse.
var errNoHTTP = errors.New("the answer is not valid HTTP")

// unquoted returns an error of a transport if it cannot quote the answer, and errNoHTTP otherwise.
func unquoted(err error) error {
	_, network := errors.AsType[net.Error](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, errno := errors.AsType[syscall.Errno](err)
	if network || certificate || errno || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, http.ErrSchemeMismatch) || strings.HasPrefix(err.Error(), "tls: ") {
		return err
	}
	return errNoHTTP
}

func (h *HTTP) authorize(r *http.Request) error {
	if h.BasicAuth == "" {
		return nil
	}
	username, err := readLine(filepath.Join(h.BasicAuth, "username"))
	if err != nil {
		return err
	}
	password, err := readLine(filepath.Join(h.BasicAuth, "password"))
	if err != nil {
		return err
	}
	r.SetBasicAuth(username, password)
	return nil
}

// readLine reads a file with one line.
func readLine(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAnswer))
	if err != nil {
		return "", err
	}
	line := strings.TrimRight(string(text), "\r\n")
	if strings.ContainsAny(line, "\r\n\x00") {
		return "", fmt.Errorf("%s has more than one line", name)
	}
	return line, nil
}

// transport returns a transport for one request: files may have changed since the last.
func (h *HTTP) transport() (*http.Transport, error) {
	t := &http.Transport{Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer}  // the application is near: no proxy
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: h.Insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // only if the operator says so
	if h.CAFile != "" {
		pem, err := os.ReadFile(h.CAFile)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", h.CAFile)
		}
	}
	return t, nil
}
