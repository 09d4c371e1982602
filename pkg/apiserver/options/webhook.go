// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/admission"
)

func (o *Options) addWebhookFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.WebhookPort, "webhook-secure-port", o.WebhookPort,
		"The port of the admission webhook, which is served with the certificate and on the address of the API. 0: no webhook.")
	fs.BoolVar(&o.WebhookSecretPath, "webhook-secret-path", o.WebhookSecretPath,
		"Serve the webhook at a path that cannot be guessed, which the leader writes into --webhook-configuration, so that other clients "+
			"in the network get no answer. If false, the path is "+admission.Path+", and the configuration has to name it.")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", o.WebhookClientCAFile,
		"If set, callers of the webhook have to present a client certificate from a CA in this file. "+
			"kube-apiserver presents none unless its --admission-control-config-file configures one.")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-allowed-names", o.WebhookClientNames,
		"With --webhook-client-ca-file, the common names that the certificates of callers may have. The default is any name. "+
			"Set it if that CA also signs certificates for others, such as kubelets.")
	fs.StringSliceVar(&o.WebhookExempt, "webhook-exempt-namespaces", o.WebhookExempt,
		"Namespaces whose workloads the webhook admits unchanged, for any caller. The server's own namespace is always exempt.")
	fs.StringVar(&o.WebhookSelector, "webhook-namespace-selector", o.WebhookSelector,
		"A label selector. Workloads of namespaces that it does not select are admitted unchanged, for any caller. "+
			"The default selects all. Set it to the namespaceSelector of the webhook configuration.")
}

func (o *Options) validateWebhook() (errs []error) {
	switch {
	case o.WebhookPort < 0 || o.WebhookPort > 65535:
		errs = append(errs, errors.New("--webhook-secure-port must be a port, or 0"))
	case o.WebhookPort != 0 && o.WebhookPort == o.SecureServing.BindPort:
		errs = append(errs, errors.New("--webhook-secure-port must be another one than --secure-port"))
	case o.WebhookPort == 0 && o.WebhookClientCAFile != "":
		errs = append(errs, errors.New("--webhook-client-ca-file is for the webhook: set --webhook-secure-port"))
	}
	if o.WebhookPort == 0 && !o.WebhookSecretPath {
		errs = append(errs, errors.New("--webhook-secret-path=false is for the webhook: set --webhook-secure-port"))
	}
	if o.WebhookPort != 0 && o.WebhookSecretPath && o.Certificate.WebhookConfiguration == "" {
		errs = append(errs, errors.New("--webhook-secret-path needs --webhook-configuration, where the path is written"))
	}
	if len(o.WebhookClientNames) > 0 && o.WebhookClientCAFile == "" {
		errs = append(errs, errors.New("--webhook-client-allowed-names needs --webhook-client-ca-file"))
	}
	errs = append(errs, validateNames("--webhook-exempt-namespaces", o.WebhookExempt)...)
	if _, err := labels.Parse(o.WebhookSelector); err != nil {
		errs = append(errs, fmt.Errorf("--webhook-namespace-selector: %w", err))
	}
	return errs
}

func validateNames(flag string, namespaces []string) (errs []error) {
	for i, namespace := range namespaces {
		if wrong := validation.ValidateNamespaceName(namespace, false); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s: %q is not the name of a namespace: %s", flag, namespace, strings.Join(wrong, "; ")))
		}
		if slices.Contains(namespaces[:i], namespace) {
			errs = append(errs, fmt.Errorf("%s names %q twice", flag, namespace))
		}
	}
	return errs
}
