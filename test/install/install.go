// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/pki"
)

// Names in the manifests.
const (
	Namespace  = "configdep-system"
	Name       = "configdep-apiserver" // the Deployment, the Service and the ServiceAccount
	APIService = "v1alpha1.configdep.io"
)

// Options are the options of Install.
type Options struct {
	// Binary is the program; if empty, Install builds cmd/configdep-apiserver.
	Binary string
	// Race builds the program with the race detector, which reports to the logs.
	Race bool
	// Replicas is the number of processes, 1 by default.
	Replicas int
	// Values names a file in the folder ci of the chart, such as recreate, with which the chart is rendered. Without it,
	// artifacts/base is applied.
	Values string
	// Set are values of the chart, as those of helm's --set: reload.jobs=true.
	Set []string
	// Args are added to the arguments of the manifest, and override them.
	Args []string
	// OwnArgs are added to the arguments of the installed replicas, but not of extra ones.
	OwnArgs []string
	// Env is added to the environment of the processes.
	Env []string
	// Kubeconfig, if set, chooses how a replica reaches the cluster: it is called with the name of the replica and
	// the kubeconfig of the ServiceAccount, and returns the path of the kubeconfig to use.
	Kubeconfig func(replica, kubeconfig string) (string, error)
	// ManagedCertificates lets the server manage the serving certificate, as the manifests do. Otherwise the
	// certificate comes from files.
	ManagedCertificates bool
	// Before, if set, is called before the manifests are applied.
	Before func(context.Context, *controlplane.ControlPlane) error
}

// Installation is the installed server.
type Installation struct {
	Replicas []*Replica

	cluster    *controlplane.ControlPlane
	options    Options
	name       string // of the Deployment and the Service
	dir        string
	authority  *pki.Authority // of the serving certificate
	args       []string       // of the Deployment
	kubeconfig string         // of the ServiceAccount
	probe      *http.Client
	balancer   *balancer
	trusted    trusted
	started    int // replicas of AddReplica

	mu     sync.Mutex
	extras []*Replica
	stop   sync.Once
}

// Install applies the manifests, starts the replicas, and returns when the API is available. The replicas are
// killed when the control plane stops; Stop lets them drain.
func Install(ctx context.Context, cluster *controlplane.ControlPlane, o Options) (_ *Installation, err error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	if o.Binary == "" {
		if o.Binary, err = build(ctx, root, o.Race, "./cmd/"+Name); err != nil {
			return nil, err
		}
	}
	i := &Installation{cluster: cluster, options: o, name: Name, dir: filepath.Join(cluster.Dir(), "configdep")}
	defer func() {
		if err != nil {
			i.Stop()
		}
	}()
	if err := i.prepare(); err != nil {
		return nil, fmt.Errorf("preparing the installation: %w", err)
	}
	if o.Before != nil {
		if err := o.Before(ctx, cluster); err != nil {
			return nil, err
		}
	}
	manifests, err := i.source(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := i.apply(ctx, manifests); err != nil {
		return nil, err
	}
	if err := i.readManifests(ctx); err != nil {
		return nil, fmt.Errorf("reading the applied manifests: %w", err)
	}
	for n := range max(1, o.Replicas) {
		name, kubeconfig := fmt.Sprintf("replica-%d", n), ""
		if o.Kubeconfig != nil {
			if kubeconfig, err = o.Kubeconfig(name, i.kubeconfig); err != nil {
				return nil, fmt.Errorf("making a kubeconfig for %s: %w", name, err)
			}
		}
		r, err := i.newReplica(name, ReplicaOptions{Kubeconfig: kubeconfig, Args: o.OwnArgs})
		if err != nil {
			return nil, err
		}
		i.Replicas = append(i.Replicas, r)
		if err := r.Start(); err != nil {
			return nil, err
		}
		i.balancer.add(r)
	}
	for _, r := range i.Replicas {
		if err := r.AwaitReady(ctx); err != nil {
			return nil, err
		}
	}
	if err := i.receive(ctx); err != nil {
		return nil, err
	}
	return i, i.AwaitAPI(ctx)
}

// receive says in the cluster that the Service has a ready endpoint, as the cluster does once the kubelet has found
// a replica to be ready.
func (i *Installation) receive(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(i.cluster.RESTConfig())
	if err != nil {
		return err
	}
	_, err = client.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: i.name, Labels: map[string]string{discoveryv1.LabelServiceName: i.name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}, // no address of this machine is allowed
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// AwaitAPI waits until kube-apiserver serves the API of the server.
func (i *Installation) AwaitAPI(ctx context.Context) error {
	for _, condition := range []string{"create", "condition=Available"} {
		if _, err := i.cluster.Kubectl(ctx, "wait", "--for="+condition, "apiservice/"+APIService, "--timeout=2m"); err != nil {
			return err
		}
	}
	return nil
}

// prepare creates the certificate and the balancer.
func (i *Installation) prepare() error {
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return err
	}
	var err error
	if i.authority, err = pki.NewAuthority("configdep"); err != nil {
		return err
	}
	pair, err := i.authority.ServingCert([]string{i.serverName()}, nil)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": i.authority.BundlePEM()} {
		if err := os.WriteFile(filepath.Join(i.dir, name), data, 0o600); err != nil {
			return err
		}
	}
	i.probe = &http.Client{Transport: &http.Transport{TLSClientConfig: i.trustBundle(), DisableKeepAlives: true}}
	i.balancer, err = newBalancer(i.probe)
	return err
}

// readManifests reads the arguments of the Deployment and creates a kubeconfig with a token of the ServiceAccount.
func (i *Installation) readManifests(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(i.cluster.RESTConfig())
	if err != nil {
		return err
	}
	deployment, err := client.AppsV1().Deployments(Namespace).Get(ctx, i.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i.args = i.ownArgs(deployment.Spec.Template.Spec.Containers[0].Args)
	account := deployment.Spec.Template.Spec.ServiceAccountName
	day := int64(24 * time.Hour / time.Second)
	token, err := client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	i.kubeconfig = filepath.Join(i.dir, "kubeconfig.yaml")
	return i.cluster.WriteKubeconfig(i.kubeconfig, token.Status.Token)
}

// serverName is the name that the aggregator expects in the certificate of the server.
func (i *Installation) serverName() string { return i.name + "." + Namespace + ".svc" }

// Binary returns the path of the program.
func (i *Installation) Binary() string { return i.options.Binary }

// Dir returns the folder with the certificate (tls.crt, tls.key, ca.crt) and the logs.
func (i *Installation) Dir() string { return i.dir }

// Manifests returns the folder with the installed kustomization, for kubectl apply -k.
func (i *Installation) Manifests() string { return filepath.Join(i.dir, "manifests") }

// Stop stops the replicas. The objects in the cluster remain. Further calls do nothing.
func (i *Installation) Stop() {
	i.stop.Do(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, r := range append(i.extras, i.Replicas...) {
			r.Kill()
			r.port.release()
		}
		if i.balancer != nil {
			i.balancer.close()
		}
	})
}
