// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"strings"
)

// described are kinds that do not come with configdep.
const described = `apiVersion: config.configdep.io/v1alpha1
kind: WorkloadKinds
kinds:
- group: goharbor.example.com
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
- group: goharbor.example.com
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
  kind: HarborAgent
  resource: harboragents
  versions: [v1]
  podTemplates: [{path: .spec.agent.template}, {path: ".spec.others[*].template"}]
  reload: {by: TemplateAnnotation, path: .spec.agent.template}
- group: goharbor.example.com
  kind: HarborFarm
  resource: harborfarms
  versions: [v1]
  podTemplates: [{path: .spec.leader.template}, {path: .spec.worker.template}]
  reload: {by: TemplateAnnotation, path: .spec.worker.template}
`

// describedKinds returns the file of --kinds-config, with the example in docs/kinds.md.
func describedKinds() string {
	text, err := os.ReadFile("../../docs/kinds.md")
	_, after, found := strings.Cut(string(text), "<!-- example -->\n")
	_, after, inside := strings.Cut(after, "\nkinds:\n")
	kinds, _, ends := strings.Cut(after, "```\n")
	if !found || !inside || !ends {
		panic(fmt.Sprintf("docs/kinds.md has no example (%v)", err))
	}
	return described + kinds
}
