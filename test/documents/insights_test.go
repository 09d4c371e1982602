// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The description of the project for security tools has the required fields of its specification and valid links:
// https://github.com/ossf/security-insights-spec/blob/v2.0.0/schema.cue
func TestSecurityInsights(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "security-insights.yml"))
	if err != nil {
		t.Fatal(err)
	}
	type contact struct {
		Name    string `json:"name"`
		Primary bool   `json:"primary"`
	}
	var insights struct {
		Header struct {
			SchemaVersion string `json:"schema-version"`
			LastUpdated   string `json:"last-updated"`
			LastReviewed  string `json:"last-reviewed"`
			URL           string `json:"url"`
		} `json:"header"`
		Project struct {
			Name           string    `json:"name"`
			Homepage       string    `json:"homepage"`
			Administrators []contact `json:"administrators"`
			Repositories   []struct {
				Name    string `json:"name"`
				URL     string `json:"url"`
				Comment string `json:"comment"`
			} `json:"repositories"`
			Reporting struct {
				Accepted bool   `json:"reports-accepted"`
				Bounty   bool   `json:"bug-bounty-available"`
				Policy   string `json:"security-policy"`
				Comment  string `json:"comment"`
			} `json:"vulnerability-reporting"`
			Documentation map[string]string `json:"documentation"`
		} `json:"project"`
		Repository struct {
			URL       string    `json:"url"`
			Status    string    `json:"status"`
			Requests  bool      `json:"accepts-change-request"`
			Automated bool      `json:"accepts-automated-change-request"`
			CoreTeam  []contact `json:"core-team"`
			License   struct {
				URL        string `json:"url"`
				Expression string `json:"expression"`
			} `json:"license"`
			Documentation map[string]string `json:"documentation"`
			Release       struct {
				Automated bool `json:"automated-pipeline"`
				Points    []struct {
					URI     string `json:"uri"`
					Comment string `json:"comment"`
				} `json:"distribution-points"`
				Changelog string `json:"changelog"`
			} `json:"release"`
			Security struct {
				Assessments struct {
					Self struct {
						Comment  string `json:"comment"`
						Evidence string `json:"evidence"`
						Date     string `json:"date"`
					} `json:"self"`
				} `json:"assessments"`
				Tools []struct {
					Name        string            `json:"name"`
					Type        string            `json:"type"`
					Comment     string            `json:"comment"`
					Rulesets    []string          `json:"rulesets"`
					Integration map[string]bool   `json:"integration"`
					Results     map[string]string `json:"results"`
				} `json:"tools"`
			} `json:"security"`
		} `json:"repository"`
	}
	if err := yaml.UnmarshalStrict(content, &insights); err != nil {
		t.Fatal(err)
	}
	for name, empty := range map[string]bool{
		"header":         insights.Header.SchemaVersion != "2.0.0" || insights.Header.LastReviewed == "" || insights.Header.LastUpdated == "",
		"administrators": len(insights.Project.Administrators) == 0,
		"repositories":   len(insights.Project.Repositories) == 0,
		"reporting":      !insights.Project.Reporting.Accepted || insights.Project.Reporting.Policy == "",
		"repository":     insights.Repository.Status != "active" || len(insights.Repository.CoreTeam) == 0 || insights.Repository.License.Expression == "",
		"release":        len(insights.Repository.Release.Points) == 0,
		"assessment":     insights.Repository.Security.Assessments.Self.Comment == "",
		"tools":          len(insights.Repository.Security.Tools) == 0,
	} {
		if empty {
			t.Errorf("%s: a required field is missing or invalid: %s", name, content)
		}
	}
	checked := 0
	for _, found := range regexp.MustCompile(`https://github\.com/configdep/configdep/blob/main/(\S+)`).FindAllStringSubmatch(string(content), -1) {
		path, anchor, _ := strings.Cut(found[1], "#")
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || anchor != "" && !anchors(string(text))[anchor] {
			t.Errorf("%s: no such file or heading (%v)", found[0], err)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("found only %d links", checked)
	}
}
