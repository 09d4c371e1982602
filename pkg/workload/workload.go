// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package workload reads and patches live workloads, and finds the active runs of CronJobs. It serves
// callers that cannot use the index, because it may lag behind.
package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Patch sends a JSON merge patch, or a JSON patch, to a workload that can be restarted, and returns the
// metadata of the result. It returns the errors of the API server, without their texts if fields of the kind can be set.
func Patch(ctx context.Context, client Client, key dependency.WorkloadKey, data []byte, dryRun []string) (metav1.Object, error) {
	k, err := client.rollable(key.Kind)
	if err != nil {
		return nil, err
	}
	typ := types.MergePatchType
	if record.IsJSONPatch(data) {
		typ = types.JSONPatchType
	}
	patched, err := client.Patch(ctx, k, key.Namespace, key.Name, typ, data, metav1.PatchOptions{FieldManager: record.FieldManager, DryRun: dryRun})
	if record.IsJSONPatch(data) {
		err = Tested(k, key.Name, err)
	}
	if err != nil && k.Traits.Fields {
		return nil, Quiet("changing a "+string(k.Name), err)
	}
	return patched, err
}

// Tested returns the error of a JSON patch that tests the version of a workload: a conflict if that is another one. What else is invalid names the
// object or has causes, and what a webhook calls so need have no details at all.
func Tested(k *kind.Kind, name string, err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return err
	}
	if details := status.Status().Details; details == nil || details.Name != "" || len(details.Causes) > 0 {
		return err
	}
	return apierrors.NewConflict(k.Resource.GroupResource(), name, errors.New("the workload has changed"))
}

// Refuses reports whether the API server has refused a request, or a webhook that it needs does not answer, so that a user has to act.
func Refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook")
}

// denies finds what has denied a request, as API servers say it. Only its name is passed on.
var denies = regexp.MustCompile(`^(?:[a-z0-9.-]+ "[a-z0-9.-]+" is forbidden: )?` +
	`(admission webhook "[a-z0-9.-]{1,253}"|ValidatingAdmissionPolicy '[a-z0-9.-]{1,253}') (?:with binding '[a-z0-9.-]{1,253}' )?denied `)

// Quiet returns an error of the API server without its text, except for the name of what has denied the request. Where fields have values of Secrets,
// it may quote them, such as that of an admission webhook.
func Quiet(what string, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("%s failed without an answer of the API server", what)
	}
	s := status.Status()
	quiet := metav1.Status{
		Status: metav1.StatusFailure, Code: s.Code, Reason: s.Reason,
		Message: fmt.Sprintf("%s failed: %s", what, http.StatusText(int(s.Code))), Details: &metav1.StatusDetails{},
	}
	if by := denies.FindStringSubmatch(s.Message); by != nil {
		quiet.Message += " (denied by " + by[1] + ")"
	}
	if s.Details != nil {
		quiet.Details.RetryAfterSeconds = s.Details.RetryAfterSeconds
	}
	return &apierrors.StatusError{ErrStatus: quiet}
}

// Live is the current state of a workload at the API server.
type Live struct {
	*dependency.Workload
	Generation int64
	kind.Progress
}

// Get reads a workload that can be restarted, with its annotations of some dialects. It returns the errors of the API
// server.
func Get(ctx context.Context, client Client, dialects policy.Dialects, key dependency.WorkloadKey) (*Live, error) {
	k, err := client.rollable(key.Kind)
	if err != nil {
		return nil, err
	}
	o, err := client.Get(ctx, k, key.Namespace, key.Name)
	if err != nil {
		return nil, err
	}
	read, err := k.Read(o)
	if err != nil {
		return nil, err
	}
	if read == nil {
		return nil, apierrors.NewNotFound(k.Resource.GroupResource(), key.Name)
	}
	client.Kinds.Relate(read)
	return &Live{dialects.ReadWorkload(read), o.GetGeneration(), k.Progress(o)}, nil
}

func (c Client) rollable(name dependency.WorkloadKind) (*kind.Kind, error) {
	if k := c.Kinds.Of(name); k != nil && k.Traits.Rollable {
		return k, nil
	}
	return nil, fmt.Errorf("a %s cannot be restarted", name)
}
