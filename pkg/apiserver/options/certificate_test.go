// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// What is wrong is said in terms of the flags.
func TestCertificateFlags(t *testing.T) {
	const files = "--tls-cert-file=a --tls-private-key-file=b "
	for args, want := range map[string][]string{
		"":                                  nil,
		files:                               nil,
		files + "--ca-bundle-file=c":        nil,
		"--manage-serving-certificate":      nil,
		"--serving-certificate-lifetime=1s": nil, // it is not used
		"--manage-serving-certificate --serving-certificate-lifetime=30s --serving-ca-lifetime=90s": nil,
		"--manage-serving-certificate " + files: {"--manage-serving-certificate excludes --tls-cert-file and --tls-private-key-file: " +
			"the certificate is either issued by the server or read from files"},
		"--ca-bundle-file=c": {"--ca-bundle-file needs --tls-cert-file"},
		"--manage-serving-certificate --ca-bundle-file=c": {"--ca-bundle-file is for a certificate from files, " +
			"and excludes --manage-serving-certificate, which knows its CAs"},
		"--manage-serving-certificate --serving-certificate-lifetime=1s": {"--serving-certificate-lifetime, --serving-ca-lifetime: " +
			"the lifetime of the serving certificate is 1s, and must be at least 30s"},
		"--manage-serving-certificate --serving-ca-lifetime=100h": {"--serving-certificate-lifetime, --serving-ca-lifetime: " +
			"the lifetime of the CA is 100h0m0s, and must be at least three times the lifetime of the serving certificate, which is 2160h0m0s"},
		"--manage-serving-certificate --serving-certificate-secret=configdep-hmac-key": {"--serving-certificate-secret must not be configdep-hmac-key, which holds the key of the config hash"},
		"--service-name=a.b": {`--service-name "a.b": a DNS-1035 label must`},
		"--service-port=0":   {"--service-port 0: must be between 1 and 65535"},
		"--manage-serving-certificate --serving-certificate-secret=": {`--serving-certificate-secret "": a lowercase RFC 1123 subdomain must`},
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, err := range o.validateCertificate() {
			message := err.Error()
			if i < len(want) && strings.HasPrefix(message, want[i]) {
				message = want[i] // the rest is said by others
			}
			got = append(got, message)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

// The certificate is for the names by which kube-apiserver calls the Service.
func TestCertificateNames(t *testing.T) {
	o := NewOptions()
	o.Namespace, o.Certificate.Service = "tools", "configdep"
	if diff := cmp.Diff([]string{"configdep.tools.svc", "configdep.tools.svc.cluster.local"}, o.CertificateProfile().Names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
