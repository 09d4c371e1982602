// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/transport"
)

// Server is how the API server is reached.
type Server struct {
	URL       string
	TokenFile string // which is read again when it changes
	CAFile    string // likewise; "": the authorities of the system
	UserAgent string
}

// Files of the ServiceAccount of a pod.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// InCluster returns how a pod reaches the API server, and the namespace of the pod.
func InCluster() (s Server, namespace string, err error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return s, "", errors.New("not running in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
	}
	s = Server{URL: "https://" + net.JoinHostPort(host, port), TokenFile: serviceAccount + "token", CAFile: serviceAccount + "ca.crt"}
	text, err := os.ReadFile(serviceAccount + "namespace")
	if err != nil {
		return s, "", fmt.Errorf("is automountServiceAccountToken false? %w", err)
	}
	return s, strings.TrimSpace(string(text)), nil
}

// Client reads ConfigMaps and Secrets.
type Client struct {
	http *http.Client
	base *url.URL
	// slots limits how many lists are read at the same time, since each is held in memory.
	slots chan struct{}
}

// NewClient returns a client of an API server. It is not that of client-go, whose package rest needs as much memory as all the rest of the
// agent; the transport, with its tokens and certificates that are read again, is.
func NewClient(s Server) (*Client, error) {
	base, err := url.Parse(s.URL)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("address of the API server: %q is no URL of http or https", s.URL)
	}
	t, err := transport.New(&transport.Config{
		UserAgent: s.UserAgent, BearerTokenFile: s.TokenFile, TLS: transport.TLSConfig{CAFile: s.CAFile, ReloadCAFiles: s.CAFile != ""},
	})
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	// There is no time limit for all: watches are long, and contexts end requests.
	// The transport would send the token to where a redirect leads.
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Client{http: c, base: base, slots: make(chan struct{}, 4)}, nil
}

// StatusError is why the API server refuses a request.
type StatusError struct {
	Code            int    `json:"code"`
	Kind            string `json:"kind"`
	Reason, Message string
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answers %d %s", e.Code, http.StatusText(e.Code))
	}
	return e.Message
}

// expired reports whether a version is too old for a watch.
func expired(err error) bool {
	status, is := errors.AsType[*StatusError](err)
	return is && status.Code == http.StatusGone
}

// apiObject is what is decoded of a ConfigMap or a Secret.
type apiObject struct {
	Metadata struct {
		Namespace       string            `json:"namespace"`
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Created         string            `json:"creationTimestamp"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data       map[string]content `json:"data"`
	BinaryData map[string][]byte  `json:"binaryData"`
}

// content is a value: of a ConfigMap as it is, of a Secret in base64.
type content []byte

// UnmarshalJSON keeps a text as it is.
func (c *content) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*c = content(text)
	return nil
}

type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

// request sends a request, whose answer the caller has to close.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (io.ReadCloser, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err // the URL is long, and says nothing new
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	var status StatusError
	if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&status); err != nil || status.Kind != "Status" {
		status = StatusError{}
	}
	status.Code = answer.StatusCode
	return nil, &status
}

// Send sends a request with a body, whose answer does not count.
func (c *Client) Send(ctx context.Context, method, path, contentType string, body []byte) error {
	answer, err := c.request(ctx, method, path, nil, contentType, body)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, answer, 1<<20) // so that the connection can be used again
	return answer.Close()
}

// maxObject is how much of one object is read. The API server takes requests of 3 MB, which may be several times as long when it escapes
// what is in them.
const maxObject = 32 << 20

// bounded ends what is read of one object.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("an object of more than %d bytes", maxObject)
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// next begins another object.
func (b *bounded) next() { b.left = maxObject }

// list reads a list, one object after the other.
func (c *Client) list(ctx context.Context, path string, query url.Values, each func(*apiObject) error) (meta listMeta, err error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return meta, context.Cause(ctx)
	}
	body, err := c.request(ctx, http.MethodGet, path, query, "", nil)
	if err != nil {
		return meta, err
	}
	defer body.Close()
	b := &bounded{body, maxObject}
	d := json.NewDecoder(b)
	err = members(d, func(name string) error {
		switch name {
		case "metadata":
			return d.Decode(&meta)
		case "items":
			return elements(d, func() error {
				var o apiObject
				b.next()
				if err := d.Decode(&o); err != nil {
					return err
				}
				return each(&o)
			})
		}
		var skipped json.RawMessage
		return d.Decode(&skipped)
	})
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("a list without a resourceVersion")
	}
	return meta, err
}

// members reads an object, and calls a function for each name, which has to read its value.
func members(d *json.Decoder, each func(name string) error) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if err := each(fmt.Sprint(name)); err != nil {
			return err
		}
	}
	return expect(d, json.Delim('}'))
}

// elements reads an array, and calls a function for each element, which has to read it.
func elements(d *json.Decoder, each func() error) error {
	token, err := d.Token()
	if err != nil || token == nil { // null
		return err
	}
	if token != json.Delim('[') {
		return errors.New("not an array")
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v instead of %v", token, want)
	}
	return err
}

// watch reads events until the watch ends, with io.EOF if it does as it should. It calls opened once it has begun.
func (c *Client) watch(ctx context.Context, path string, query url.Values, opened func(), each func(kind string, o *apiObject) error) error {
	body, err := c.request(ctx, http.MethodGet, path, query, "", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	opened()
	b := &bounded{from: body}
	d := json.NewDecoder(b)
	for {
		b.next()
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" {
			status := &StatusError{}
			if err := json.Unmarshal(e.Object, status); err != nil {
				return err
			}
			return status
		}
		var o apiObject
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return err
		}
		if err := each(e.Type, &o); err != nil {
			return err
		}
	}
}
