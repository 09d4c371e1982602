// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/spf13/cobra"

	"github.com/configdep/configdep/pkg/plugin/values"
)

func newConvertValues(p *plugin) *cobra.Command {
	var o values.Options
	c := &cobra.Command{
		Use:   "convert-values",
		Short: "Converts values of the chart of Stakater Reloader to those of configdep's",
		Long: `Reads the values of a release of Stakater Reloader from standard input, and prints values
for configdep's chart. A comment at their beginning lists each value that is not converted,
with the reason.`,
		Example: `  helm get values reloader -n reloader -o yaml | kubectl configdep convert-values >values.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return values.Convert(p.In, p.Out, o) },
	}
	c.Flags().StringVar(&o.Namespace, "release-namespace", "", "The namespace of Reloader's release; needed if it watches only some namespaces (reloader.watchGlobally: false).")
	c.Flags().BoolVar(&o.Observe, "observe", false, "Set reload.observe, so that configdep only shows what it would restart, beside Reloader.")
	c.Flags().BoolVar(&o.Jobs, "jobs", true, "Set reload.jobs, which grants rights to create and delete Jobs, so that CronJobs and Jobs are run again as by Reloader; not if the values ignore both.")
	return c
}
