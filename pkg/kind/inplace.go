// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/dependency"
)

// notInPlace returns InPlace.NotInPlace of an object.
func notInPlace(o *dependency.Object) string {
	if o.Template == nil {
		return noRestarter
	}
	switch {
	case RestarterOf(&o.Template.Spec) == "":
		return noRestarter
	case o.MaxUnavailable == 0:
		return "its update strategy lets no pod be unavailable"
	default:
		return ""
	}
}

const noRestarter = "its pod template has no restarter"

// maxUnavailable returns InPlace.MaxUnavailable from the field of an update strategy for a number of pods. A percentage is rounded as the
// controller of the kind does, but only 0% is none.
func maxUnavailable(field *intstr.IntOrString, pods int32, roundUp bool) int32 {
	if field == nil {
		return 1
	}
	if all, err := intstr.GetScaledValueFromIntOrPercent(field, 100, true); err == nil && all == 0 {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(field, int(pods), roundUp)
	if err != nil {
		return 1
	}
	return int32(max(1, min(n, int(pods))))
}
