// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// serviceAccountNamespace is the file in which the kubelet tells a container its namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// podNamespace returns the namespace of the pod in which the server runs; empty: it is not known.
func podNamespace() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	if ns, err := os.ReadFile(serviceAccountNamespace); err == nil {
		return strings.TrimSpace(string(ns))
	}
	return ""
}

// Standalone reports whether the server belongs to no installation: it shows the cluster to the user who starts it, with that
// user's rights, and writes nothing to the cluster.
func (o *Options) Standalone() bool { return o.Namespace == "" }

// completeStandalone switches off what needs rights other than to read workloads and their sources, or serves other users.
func (o *Options) completeStandalone() {
	o.Authentication, o.Authorization, o.Admission = nil, nil, nil
	o.Features.EnablePriorityAndFairness = false
	if !o.set("bind-address") {
		o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	}
}

func (o Completed) validateNamespace() (errs []error) {
	for _, wrong := range validation.ValidateNamespaceName(o.Namespace, false) {
		if !o.Standalone() {
			errs = append(errs, fmt.Errorf("--namespace: %q is not the name of a namespace: %s", o.Namespace, wrong))
		}
	}
	switch kubeconfig := o.CoreAPI.CoreAPIKubeconfigPath; {
	case kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "":
		errs = append(errs, errors.New("--kubeconfig is needed when the server does not run in a pod"))
	case !o.Standalone():
		if o.WriteKubeconfig != "" {
			errs = append(errs, errors.New("--write-kubeconfig is for a server without --namespace"))
		}
	case !o.Reload.Observe:
		errs = append(errs, errors.New("with --kubeconfig, set --observe to show the cluster beside any installation and change nothing, "+
			"or --namespace to take part in the installation in that namespace"))
	case o.WriteKubeconfig == "":
		errs = append(errs, errors.New("--write-kubeconfig is needed without --namespace: only the file that it names gives access to the server"))
	case o.Certificate.Manage, o.Certificate.CABundleFile != "", len(o.destinations.configs) > 0:
		errs = append(errs, errors.New("--manage-serving-certificate, --ca-bundle-file and notifications need --namespace"))
	}
	return errs
}
