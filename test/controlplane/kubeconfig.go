// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns the path of an administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfigOf("admin") }

// KubeconfigFor writes a kubeconfig for the user that cfg authenticates as into Dir and returns its path.
func (c *ControlPlane) KubeconfigFor(name string, cfg *rest.Config) (string, error) {
	path := c.kubeconfigOf(name)
	if err := writeKubeconfig(path, cfg); err != nil {
		return "", err
	}
	return path, nil
}

// WriteKubeconfig writes a kubeconfig for the user of the bearer token, typically a ServiceAccount.
func (c *ControlPlane) WriteKubeconfig(path, token string) error {
	cfg := rest.AnonymousClientConfig(c.RESTConfig())
	cfg.BearerToken = token
	return writeKubeconfig(path, cfg)
}

func (c *ControlPlane) kubeconfigOf(name string) string { return c.file("kubeconfig", name+".yaml") }

// writeKubeconfigs writes the kubeconfigs of the administrator and of the components, which have the same permissions as
// in any cluster.
func (c *ControlPlane) writeKubeconfigs() error {
	if _, err := c.KubeconfigFor("admin", c.RESTConfig()); err != nil {
		return err
	}
	for name, user := range map[string][]string{
		controllerManager: {"system:kube-controller-manager"},
		scheduler:         {"system:kube-scheduler"},
		kwok:              {"kwok", "system:masters"},
	} {
		cfg, err := c.ClientConfig(user[0], user[1:]...)
		if err != nil {
			return err
		}
		if _, err := c.KubeconfigFor(name, cfg); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(path string, cfg *rest.Config) error {
	const name = "controlplane"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   cfg.Host,
		CertificateAuthority:     cfg.CAFile,
		CertificateAuthorityData: cfg.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate:     cfg.CertFile,
		ClientCertificateData: cfg.CertData,
		ClientKey:             cfg.KeyFile,
		ClientKeyData:         cfg.KeyData,
		Token:                 cfg.BearerToken,
		TokenFile:             cfg.BearerTokenFile,
		Impersonate:           cfg.Impersonate.UserName,
		ImpersonateUID:        cfg.Impersonate.UID,
		ImpersonateGroups:     cfg.Impersonate.Groups,
		ImpersonateUserExtra:  cfg.Impersonate.Extra,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", filepath.Base(path), err)
	}
	return nil
}
