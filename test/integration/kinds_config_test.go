// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"strings"
)

// describedKinds is the head of a file of --kinds-config.
const describedKinds = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
`

// Kinds that do not come with configdep. The installation reads the first three, and the example in docs/kinds.md.
const (
	describedForAll = `- group: goharbor.example.com
  kind: HarborStore
  resource: harborstores
  versions: [v1]
  sources: [{kind: Secret, name: .spec.secretName}]
  reload: {by: Annotation}
  fields: true
- group: goharbor.example.com
  kind: HarborReport
  resource: harborreports
  versions: [v1]
  sources: [{kind: Secret, name: .spec.secretName}]
  reload: {by: Event}
- group: goharbor.example.com
  kind: HarborFarm
  resource: harborfarms
  versions: [v1]
  podTemplates: [{path: .spec.leader.template}, {path: .spec.worker.template}]
  reload: {by: TemplateAnnotation, path: .spec.worker.template}
`
	describedSite = `- group: goharbor.example.com
  kind: HarborSite
  resource: harborsites
  versions: [v2, v1]
  sources:
  - {kind: Secret, name: ".spec.database.passwordRef", keyName: password}
  - {kind: ConfigMap, name: ".spec.extra[*].name", namespace: ".spec.extra[*].namespace", optional: true}
  reload: {by: Field, path: .spec.restartedAt}
  status:
    observedGeneration: .status.observedGeneration
    complete: [{condition: Ready}]
`
	describedAgent = `- group: goharbor.example.com
  kind: HarborAgent
  resource: harboragents
  versions: [v1]
  podTemplates: [{path: .spec.agent.template}, {path: ".spec.others[*].template"}]
  reload: {by: TemplateAnnotation, path: .spec.agent.template}
`
)

// kindsConfig returns the file of --kinds-config of the installation.
func kindsConfig() string {
	text, err := os.ReadFile("../../docs/kinds.md")
	_, after, found := strings.Cut(string(text), "<!-- example -->\n")
	_, after, inside := strings.Cut(after, "\nkinds:\n")
	kinds, _, ends := strings.Cut(after, "```\n")
	if !found || !inside || !ends {
		panic(fmt.Sprintf("docs/kinds.md has no example (%v)", err))
	}
	return describedKinds + describedForAll + kinds
}
