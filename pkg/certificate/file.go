// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// reread is how often a file is read again. The kubelet updates mounted Secrets within about a minute.
const reread = 5 * time.Second

// Follow keeps objects correct, with the bundle in a file, until the context is done. While the file cannot be read, or
// contains no valid bundle, the previous bundle remains. Nothing else that may be in the file, such as a private key, is
// published.
func Follow(ctx context.Context, path string, bundles *Bundles) {
	defer bundles.begin(ctx)()
	said := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		cas, err := certutil.CertsFromFile(path)
		switch {
		case err == nil:
			bundles.Set([]byte(encode(cas...)))
			said = ""
		case err.Error() != said:
			said = err.Error()
			klog.FromContext(ctx).Error(err, "Reading the CA bundle failed; continuing with the previous one", "file", path)
		}
	}, reread)
}
