// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/install"
)

// account is the user name of the server.
const account = "system:serviceaccount:" + install.Namespace + ":" + install.Name

// auditPolicy makes kube-apiserver log the requests of the server, and requests to its API.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Metadata", "users": ["` + account + `"]},
{"level": "Metadata", "resources": [{"group": "configdep.io"}]},
{"level": "None"}
]}`

const auditFile = "audit.log"

// auditArgs returns the flags of kube-apiserver, and writes the policy into a folder.
func auditArgs(dir string) ([]string, error) {
	path := filepath.Join(dir, "audit-policy.json")
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + auditFile, "--audit-log-maxsize=1000"}, os.WriteFile(path, []byte(auditPolicy), 0o600)
}

// call is one request in the audit log.
type call struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	Received metav1.MicroTime `json:"requestReceivedTimestamp"`
}

func (c *call) resource() string {
	if c.ObjectRef.Subresource != "" {
		return c.ObjectRef.Resource + "/" + c.ObjectRef.Subresource
	}
	return c.ObjectRef.Resource
}

func (c *call) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s: %d", c.Verb, c.resource(), c.ObjectRef.APIGroup, c.ObjectRef.Namespace, c.ObjectRef.Name, c.ResponseStatus.Code)
}

// needs reports whether a rule grants the permission for a call. A patch that creates the object, an apply, needs the
// permission to create it, too.
func (c *call) needs(r *rbacv1.PolicyRule) bool {
	created := c.Verb == "patch" && c.ResponseStatus.Code == 201 && slices.Contains(r.Verbs, "create")
	return slices.Contains(r.APIGroups, c.ObjectRef.APIGroup) && slices.Contains(r.Resources, c.resource()) && (slices.Contains(r.Verbs, c.Verb) || created) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, c.ObjectRef.Name))
}

// calls returns the requests in the log from a position on, and the position of its end.
func calls(from int64) (found []call, end int64, err error) {
	f, err := os.Open(filepath.Join(cluster.Dir(), auditFile))
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if _, err := f.Seek(from, 0); err != nil {
		return nil, 0, err
	}
	reader := bufio.NewReader(f)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return found, from, nil //nolint:nilerr // the end, or half a line
		}
		from += int64(len(line))
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, 0, errors.Join(err, fmt.Errorf("in line %q", line))
		}
		found = append(found, c)
	}
}

// grant is one rule of a role of the server.
type grant struct {
	namespace, role string // no namespace: a ClusterRole
	index           int
	rule            rbacv1.PolicyRule
}

func (g *grant) String() string {
	return fmt.Sprintf("%s/%s, rule %d: %s %s%s %v %v", g.namespace, g.role, g.index, g.rule.Verbs, g.rule.Resources, g.rule.APIGroups, g.rule.ResourceNames, g.rule.NonResourceURLs)
}

// grants returns all rules that the manifests grant to the server. Roles of Kubernetes are omitted, with which
// every aggregated API authenticates and authorizes its callers.
func grants(ctx context.Context) (all []grant, err error) {
	bound := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return s.Namespace == install.Namespace && s.Name == install.Name })
	}
	add := func(namespace, role string, rules []rbacv1.PolicyRule) {
		for i, rule := range rules {
			all = append(all, grant{namespace, role, i, rule})
		}
	}
	clusterRole := func(name string) error {
		if name == "system:auth-delegator" {
			return nil
		}
		role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			add("", name, role.Rules)
		}
		return err
	}
	clusterWide, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, b := range clusterWide.Items {
		if bound(b.Subjects) {
			if err := clusterRole(b.RoleRef.Name); err != nil {
				return nil, err
			}
		}
	}
	namespaced, err := client.RbacV1().RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, b := range namespaced.Items {
		if !bound(b.Subjects) || b.RoleRef.Name == "extension-apiserver-authentication-reader" {
			continue
		}
		role, err := client.RbacV1().Roles(b.Namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		add(b.Namespace, role.Name, role.Rules)
	}
	return all, nil
}

// permits reports whether the rule permits a call of the server.
func (g *grant) permits(c *call) bool {
	return c.User.Username == account && c.needs(&g.rule) && (g.namespace == "" || g.namespace == c.ObjectRef.Namespace)
}

// permitting returns how many rules permit a call.
func permitting(all []grant, c *call) (n int) {
	for i := range all {
		if all[i].permits(c) {
			n++
		}
	}
	return n
}
