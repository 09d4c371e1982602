// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// dependencies is the path of all ConfigDependencies.
const dependencies = "/apis/configdep.io/v1alpha1/configdependencies"

// in returns the path of the ConfigDependencies in one namespace.
func in(namespace string) string {
	return "/apis/configdep.io/v1alpha1/namespaces/" + namespace + "/configdependencies"
}

// watchesPerConnection is how many watches share a connection.
const watchesPerConnection = 100

// newRequester returns a client with a connection of its own, whose answers are neither compressed nor decoded: the
// client shares the processors with the server.
func newRequester(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext
	config.DisableCompression = true
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes = "application/json"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

func get(client rest.Interface, path string) *rest.Request {
	return client.Get().RequestURI(path).MaxRetries(0)
}

// rawList is a list, of which only the version is decoded.
type rawList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// list lists a path.
func list(ctx context.Context, client rest.Interface, path string) (all rawList, err error) {
	content, err := get(client, path).DoRaw(ctx)
	if err != nil {
		return all, err
	}
	return all, json.Unmarshal(content, &all)
}

// longestEvent is a limit for the size of events.
const longestEvent = 16 << 20

// linesOf returns the lines of a watch, each of which is an event. A line that is cut off does not count.
func linesOf(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestEvent)
	lines.Split(func(data []byte, _ bool) (int, []byte, error) {
		if line, _, whole := bytes.Cut(data, []byte("\n")); whole {
			return len(line) + 1, line, nil
		}
		return 0, nil, nil
	})
	return lines
}

// parseEvent returns the type of an event and its object in JSON. An event of an error is returned as an error of the API.
func parseEvent(line []byte) (kind string, object []byte, err error) {
	rest, isEvent := bytes.CutPrefix(line, []byte(`{"type":"`))
	before, object, found := bytes.Cut(rest, []byte(`","object":`))
	object = bytes.TrimSuffix(object, []byte("}"))
	switch {
	case !isEvent || !found:
		return "", nil, fmt.Errorf("%.200q is not an event", line)
	case string(before) == "ERROR":
		failed := &apierrors.StatusError{}
		return "", nil, errors.Join(json.Unmarshal(object, &failed.ErrStatus), failed)
	}
	return string(before), object, nil
}

// readEvents reads the next n events of a watch, besides bookmarks.
func readEvents(lines *bufio.Scanner, n int) error {
	for n > 0 {
		if !lines.Scan() {
			return fmt.Errorf("a watch ended, and %d events are missing: %w", n, lines.Err())
		}
		kind, _, err := parseEvent(lines.Bytes())
		if err != nil {
			return err
		}
		if kind != "BOOKMARK" {
			n--
		}
	}
	return nil
}
