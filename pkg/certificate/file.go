// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// reread is how often a file is read again. The kubelet updates mounted Secrets within
// about a minute.
const reread = 5 * time.Second

// Follow keeps objects correct, with the bundle in a file, until the context is done.
// While the file cannot be read, or contains no bundle, the previous bundle remains.
func Follow(ctx context.Context, path string, bundles *Bundles) {
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() { bundles.Run(ctx) })
	ticker := time.NewTicker(reread)
	defer ticker.Stop()
	said := ""
	for {
		bundle, err := readBundle(path)
		switch {
		case err == nil:
			bundles.Set(bundle)
			said = ""
		case err.Error() != said:
			klog.FromContext(ctx).Error(err, "Reading the CA bundle failed; continuing with the previous one", "file", path)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readBundle returns only the certificates in a file, and nothing else that may be in it,
// such as a private key, because the result is published.
func readBundle(path string) (bundle []byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for block := range blocks(data) {
		if block.Type != certBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing a certificate in %s: %w", path, err)
		}
		bundle = append(bundle, certPEM(cert)...)
	}
	if bundle == nil {
		return nil, errors.New(path + " contains no PEM-encoded certificate")
	}
	return bundle, nil
}
