// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/notify/webhook"
)

const (
	// Limits of the file, and of a file with a URL or a key, in bytes.
	maxFile       = 256 << 10
	maxSecretFile = 8 << 10

	maxDestinations = 16

	leastTimeout, mostTimeout = time.Second, time.Minute // as errors say
)

// Read returns the destinations in a file, or everything that is wrong with it. The name of the cluster, if it is not
// empty, has to be valid in the path of a URL.
func Read(path, cluster string) ([]webhook.Config, []error) {
	configs, errs := read(path, cluster)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, err)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return configs, nil
}

func read(path, cluster string) (configs []webhook.Config, errs []error) {
	content, err := readFile(path, maxFile)
	if err != nil {
		return nil, []error{err}
	}
	file, errs := decode(content)
	if len(errs) > 0 {
		return nil, errs
	}
	names := map[string]bool{}
	for i := range file.Destinations {
		d := &file.Destinations[i]
		where := fmt.Sprintf("destination %q", d.Name)
		config, wrong := d.config(filepath.Dir(path), cluster)
		switch {
		case slices.ContainsFunc(wrong, func(err *webhook.FieldError) bool { return err.Field == "name" }):
			where = fmt.Sprintf("destinations[%d]", i) // the name may be a URL
		case d.Name == Instead:
			wrong = append(wrong, &webhook.FieldError{Field: "name", Problem: "must not be " + Instead + ", which is the destination of the flag --" + Instead})
		case d.Name == Alert:
			wrong = append(wrong, &webhook.FieldError{Field: "name", Problem: "must not be " + Alert + ", which is the destination of the variable " + alertOnReload})
		case names[d.Name]:
			where = fmt.Sprintf("destinations[%d]", i)
			wrong = append(wrong, &webhook.FieldError{Field: "name", Problem: "must be unique"})
		}
		names[d.Name] = true
		for _, err := range wrong {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		configs = append(configs, config)
	}
	return configs, errs
}

// config returns the configuration of a destination, and what is wrong with it.
func (d *Destination) config(folder, cluster string) (c webhook.Config, errs []*webhook.FieldError) {
	c = webhook.Config{
		Name: d.Name, Format: d.Format, Source: d.Source, Template: d.Template,
		Events: d.Events, Namespaces: d.Namespaces, Proxy: d.Proxy, Cluster: cluster,
	}
	if len(c.Events) == 0 {
		c.Events = DefaultEvents()
	}
	if c.Source == "" && c.Format == webhook.Generic {
		c.Source = sourceOf(cluster)
	}
	missing := map[string]bool{} // fields of c whose values are not known, so that they cannot be judged
	for field, err := range map[string]*webhook.FieldError{"url": d.setURL(&c, folder), "key": d.setKey(&c, folder), "timeout": d.setTimeout(&c)} {
		if err != nil {
			missing[field] = true
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b *webhook.FieldError) int { return strings.Compare(a.Field, b.Field) })
	for _, err := range c.Validate() {
		if missing[err.Field] {
			continue
		}
		if err.Field == "key" || err.Field == "url" && d.URLFile != "" {
			err.Field += "File"
			if content, is := strings.CutPrefix(err.Problem, "must "); is {
				err.Problem = "its content must " + content
			}
		}
		errs = append(errs, err)
	}
	return c, errs
}

func (d *Destination) setURL(c *webhook.Config, folder string) *webhook.FieldError {
	switch {
	case d.URL == "" && d.URLFile == "":
		return &webhook.FieldError{Field: "url", Problem: "must be set, unless urlFile is"}
	case d.URL != "" && d.URLFile != "":
		return &webhook.FieldError{Field: "url", Problem: "excludes urlFile: set one of them"}
	case d.URL != "":
		c.URL = d.URL
		return nil
	}
	content, err := readSecret(folder, d.URLFile)
	if err != nil {
		return &webhook.FieldError{Field: "urlFile", Problem: err.Error()}
	}
	c.URL = content
	return nil
}

func (d *Destination) setKey(c *webhook.Config, folder string) *webhook.FieldError {
	if d.KeyFile == "" {
		return nil
	}
	content, err := readSecret(folder, d.KeyFile)
	if err != nil {
		return &webhook.FieldError{Field: "keyFile", Problem: err.Error()}
	}
	c.Key = []byte(content)
	return nil
}

func (d *Destination) setTimeout(c *webhook.Config) *webhook.FieldError {
	if d.Timeout == "" {
		return nil
	}
	timeout, err := time.ParseDuration(d.Timeout) // an error that contains it
	if err != nil || timeout < leastTimeout || timeout > mostTimeout {
		return &webhook.FieldError{Field: "timeout", Problem: "must be a duration from 1s to 1m, such as 10s"}
	}
	c.Timeout = timeout
	return nil
}

// readSecret returns the content of a file in a folder, without a newline at its end. Its errors do not contain the path,
// because it may be a URL that is in the wrong field.
func readSecret(folder, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	content, err := readFile(path, maxSecretFile)
	text := strings.TrimSuffix(string(content), "\n")
	return strings.TrimSuffix(text, "\r"), err
}

// readFile returns the content of a file. Its errors do not contain the path.
func readFile(path string, limit int) ([]byte, error) {
	content, err := readAtMost(path, limit+1)
	var cause *fs.PathError
	switch {
	case errors.As(err, &cause):
		return nil, fmt.Errorf("cannot be read: %w", cause.Err)
	case err != nil:
		return nil, errors.New("cannot be read")
	case len(content) > limit:
		return nil, fmt.Errorf("must have at most %d bytes", limit)
	}
	return content, nil
}

func readAtMost(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)))
}

// sourceOf returns the source of CloudEvents of a cluster, whose name may be empty.
func sourceOf(cluster string) string {
	if cluster == "" {
		return ""
	}
	return webhook.DefaultSource + "/" + cluster
}
