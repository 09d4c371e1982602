// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/source"
	"github.com/configdep/configdep/pkg/agent/status"
)

// quote quotes the value of a label as the text format does.
var quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// writeSources writes how many objects are applied and, with names, in which versions. As a report does, it names none of more than
// status.MaxSources objects: each is a time series, and each new version begins another one.
func writeSources(w io.Writer, s *agent.Status, names bool, metric func(name, kind, help string)) {
	const info, count = "configdep_agent_source_info", "configdep_agent_sources"
	present := 0
	for _, v := range s.Versions {
		if v.UID != "" {
			present++
		}
	}
	metric(count, "gauge", "Number of ConfigMaps and Secrets from which the applied content comes.")
	_, _ = fmt.Fprintf(w, "%s %d\n", count, present)
	if !names || present == 0 || present > status.MaxSources {
		return
	}
	metric(info, "gauge", fmt.Sprintf("1 for each ConfigMap and Secret whose content is applied, with its version. None if they are more than %d.", status.MaxSources))
	for _, v := range s.Versions {
		if v.UID != "" {
			_, _ = fmt.Fprintf(w, "%s{kind=\"%s\",namespace=\"%s\",name=\"%s\",resource_version=\"%s\"} 1\n",
				info, v.Kind, quote.Replace(v.Namespace), quote.Replace(v.Name), quote.Replace(v.ResourceVersion))
		}
	}
}

// writeRejected writes how many objects are left out and, with names, which ones.
func writeRejected(w io.Writer, s *agent.Status, names bool, metric func(name, kind, help string)) {
	const info, count = "configdep_agent_rejected_source_info", "configdep_agent_rejected_sources"
	metric(count, "gauge", "Number of objects of selectors that are left out because they cannot be used.")
	_, _ = fmt.Fprintf(w, "%s %d\n", count, len(s.Rejected))
	if !names || len(s.Rejected) == 0 {
		return
	}
	metric(info, "gauge", fmt.Sprintf("1 for each object of a selector that is left out; none after the first %d. It has no name if a selector can match nothing.", status.MaxSources))
	told := map[source.Rejected]bool{} // two selectors may match one object
	for _, r := range s.Rejected[:min(len(s.Rejected), status.MaxSources)] {
		if r.Why = ""; told[r] {
			continue
		}
		told[r] = true
		_, _ = fmt.Fprintf(w, "%s{kind=\"%s\",namespace=\"%s\",name=\"%s\"} 1\n", info, r.Kind, quote.Replace(r.Namespace), quote.Replace(r.Name))
	}
}

// writeMetrics writes the metrics of an agent in the text format of Prometheus, whose library needs more memory than the sources of an
// agent.
func writeMetrics(w io.Writer, a Agent, names bool) {
	s := a.Status()
	metric := func(name, kind, help string) {
		_, _ = fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", name, help, kind)
	}
	gauge := func(name, help string, value float64) {
		metric(name, "gauge", help)
		_, _ = fmt.Fprintf(w, "%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
	}
	const info, failures = "configdep_agent_content_info", "configdep_agent_failures_total"
	metric(info, "gauge", "1, with digests of the content that is wanted and of the content that is applied. They can be compared within this process alone.")
	_, _ = fmt.Fprintf(w, "%s{wanted=%q,applied=%q} 1\n", info, s.Wanted, s.Applied)
	gauge("configdep_agent_in_sync", "1 if the application works with the content that the sources have; 0 if not.", one(s.InSync()))
	gauge("configdep_agent_rolled_back", "1 if older files came back because the application did not reload; 0 if not.", one(s.RolledBack))
	gauge("configdep_agent_sources_complete", "1 if all required sources exist and can be read; 0 if not.", one(s.Wanted != "" && s.Unread == nil))
	if !s.AppliedAt.IsZero() {
		gauge("configdep_agent_last_applied_timestamp_seconds", "When content was applied last, in seconds since the epoch.", seconds(s.AppliedAt))
	}
	metric("configdep_agent_applied_total", "counter", "How often content has been applied.")
	_, _ = fmt.Fprintf(w, "configdep_agent_applied_total %d\n", s.Successes)
	metric(failures, "counter", "How often a step has failed.")
	for _, step := range agent.Steps {
		_, _ = fmt.Fprintf(w, "%s{step=%q} %d\n", failures, step, s.Failures[step])
	}
	writeSources(w, &s, names, metric)
	writeRejected(w, &s, names, metric)
	var oldest time.Time
	health := a.Health()
	for i, h := range health {
		if i == 0 || h.Heard.Before(oldest) {
			oldest = h.Heard
		}
	}
	if len(health) > 0 {
		gauge("configdep_agent_source_last_heard_timestamp_seconds",
			"When something was last received from the source that has been silent for the longest time, in seconds since the epoch; 0 if nothing was.", seconds(oldest))
	}
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
