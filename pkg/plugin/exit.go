// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The exit codes of all commands.
const (
	exitDone        = 0
	exitError       = 1
	exitFound       = 2
	exitPartly      = 3
	exitTimeout     = 4
	exitForbidden   = 5
	exitInterrupted = 130
)

// exitCodes says what the exit codes mean, for the documentation.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitDone, "Done. Nothing was found, by a command that looks for something."},
	{exitError, "An error, such as an unknown flag, or a server that does not answer."},
	{exitFound, "Something was found: `stale`, `who --pods`, `missing`, `check` and `report` have printed it. Or `wait` has found a workload that will not get there by itself."},
	{exitPartly, "Only a part was done or read; the output says which."},
	{exitTimeout, "The time of `--timeout` was over."},
	{exitForbidden, "The user lacks a right; the message says which."},
	{exitInterrupted, "Interrupted by Ctrl-C or SIGTERM."},
}

// exit ends a command with a code other than 0 and 1. A nil error: everything has been printed.
type exit struct {
	code int
	error
}

func (e *exit) Unwrap() error { return e.error }

// found returns the outcome of a command that looks for something.
func found(is bool) error {
	if is {
		return &exit{exitFound, nil}
	}
	return nil
}

// codeOf returns the exit code for an error.
func codeOf(ctx context.Context, err error) int {
	var e *exit
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		return e.code
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return exitForbidden
	default:
		return exitError
	}
}

// reached says what an error of a connection is about, without the request that met it.
func reached(err error) error {
	var request *url.Error
	if !errors.As(err, &request) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	at := request.URL
	if u, failed := url.Parse(at); failed == nil {
		at = u.Host
	}
	return fmt.Errorf("the API server %s cannot be reached: %w. Check --context and the kubeconfig", at, request.Err)
}

// explain says what to do about an error of the API of configdep.
func explain(err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil, !errors.As(err, &status):
		return err
	case apierrors.IsNotFound(err) && unserved(status.Status()):
		return fmt.Errorf("configdep is not installed in this cluster: it does not serve the API configdep.io/v1alpha1. `kubectl configdep report` needs no installation")
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("configdep's server does not answer: %w. `kubectl get apiservice v1alpha1.configdep.io` says why", err)
	case apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		return fmt.Errorf("configdep's server may be older than this plugin: %w", err)
	default:
		return err
	}
}

// unserved reports whether an answer is about the resource, and not about an object.
func unserved(s metav1.Status) bool {
	return s.Details == nil || s.Details.Name == ""
}
