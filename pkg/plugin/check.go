// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
)

func newCheck(p *plugin) *cobra.Command {
	var files []string
	format, live := "text", false
	c := &cobra.Command{
		Use:   "check -f FILE",
		Short: "Checks manifests for references to nothing, and for mistakes in annotations",
		Long: `Checks manifests without a cluster: whether each ConfigMap, Secret and key that a workload
needs is in the manifests, and whether the annotations of configdep, and those of
Reloader, pod-reloader and wave that it reads, are valid. Kinds that are not known are
left out. With --live, what the manifests lack may be in the cluster. Of charts and
kustomizations, check what they make.

The command ends with code 2 if there is a finding.`,
		Example: `  # A folder, in CI
  kubectl configdep check -f manifests/ -o sarif

  # What a kustomization makes
  kubectl kustomize overlays/production | kubectl configdep check -f -

  # What a chart makes, with Secrets that are only in the cluster
  helm template shop ./shop | kubectl configdep check -n shop --live -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			write, known := formats[format]
			switch {
			case !known:
				return fmt.Errorf("--output=%s: want text, json, sarif or junit", format)
			case len(files) == 0:
				return errors.New("say which files or folders with -f; - is standard input")
			}
			m, err := p.manifests(files)
			if err != nil {
				return err
			}
			if live {
				if err := p.complete(c.Context(), m); err != nil {
					return err
				}
			}
			if len(m.objects)+len(m.invalid) == 0 {
				return errors.New("there is no manifest of a kind that is checked")
			}
			findings, err := m.check()
			if err != nil {
				return err
			}
			if err := write(p.Out, m, findings); err != nil {
				return err
			}
			return found(len(findings) > 0)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "Files, or folders with all below; - is standard input.")
	c.Flags().StringVarP(&format, "output", "o", format, "The form of the findings: text, json, sarif or junit.")
	c.Flags().BoolVar(&live, "live", false, "What the manifests lack may be in the cluster; the user must be allowed to get it.")
	return c
}

// position is where a manifest begins.
type position struct {
	file string
	line int
}

// manifests are what files contain.
type manifests struct {
	objects []runtime.Object
	at      map[string]position // by KIND/NAMESPACE/NAME
	// inNamespace is the namespace of those that name none.
	inNamespace string
	invalid     []finding // what cannot be read
	log         io.Writer
}

// finding is something wrong with a workload.
type finding struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	Rule      string `json:"rule"`
	Message   string `json:"message"`
}

// The rules of findings.
var rules = []struct{ id, text string }{
	{"SourceMissing", "A ConfigMap or Secret that pods need is not in the manifests."},
	{"KeyMissing", "A key that pods need is not in its ConfigMap or Secret."},
	{"InvalidManifest", "A manifest cannot be read."},
	{"InvalidAnnotation", "An annotation is unknown, misplaced, or has an invalid value, so that nothing restarts the workload."},
	{"SuspiciousAnnotation", "An annotation is valid, and seems not to say what is meant."},
}

// maxManifest limits a file, in bytes.
const maxManifest = 64 << 20

// manifests reads files and folders.
func (p *plugin) manifests(files []string) (*manifests, error) {
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	m := &manifests{at: map[string]position{}, inNamespace: namespace, log: p.ErrOut}
	for _, name := range files {
		if name == "-" {
			if err := m.read("-", p.In); err != nil {
				return nil, err
			}
			continue
		}
		err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if ext := filepath.Ext(path); path != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
				return nil
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return m.read(path, f)
		})
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// read reads the documents of a file.
func (m *manifests) read(file string, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxManifest:
		return fmt.Errorf("%s has more than %d MiB", file, maxManifest>>20)
	}
	line := 1
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		at := position{file, line + leading(document)}
		if err := m.add(document, at, false); err != nil {
			m.invalid = append(m.invalid, finding{at.file, at.line, m.inNamespace, "manifest", "InvalidManifest", dependency.Line(err.Error())})
		}
		line += bytes.Count(document, []byte("\n")) + 1
	}
}

// leading returns how many lines of a document are blank or comments before its content.
func leading(document []byte) (n int) {
	for line := range bytes.Lines(document) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			break
		}
		n++
	}
	return n
}

// lineOf finds the line in an error of YAML.
var lineOf = regexp.MustCompile(`line \d+`)

// add adds the objects of a document, which may be nested in a List.
func (m *manifests) add(document []byte, at position, nested bool) error {
	var of metav1.TypeMeta
	switch err := yaml.Unmarshal(document, &of); {
	case err != nil: // without what is in the document, which may be a Secret
		return errors.New(cmp.Or(lineOf.FindString(err.Error()), "it") + " is not valid YAML")
	case of.Kind == "List" && nested:
		return errors.New("a List in a List")
	case of.Kind == "List":
		var list corev1.List
		if err := yaml.Unmarshal(document, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := m.add(list.Items[i].Raw, at, true); err != nil {
				return err
			}
		}
		return nil
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return nil
	}
	if err != nil {
		return err
	}
	meta, ok := o.(metav1.Object)
	if !ok {
		return nil
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if s, is := o.(*corev1.Secret); is {
		s.Data, s.StringData = contentOf(s.StringData, s.Data), nil // as the API server does
	}
	if kind != "Namespace" && meta.GetNamespace() == "" {
		meta.SetNamespace(m.inNamespace)
	}
	if meta.GetName() == "" { // as with generateName, of which there may be several
		meta.SetName(fmt.Sprintf("%s%d", meta.GetGenerateName(), len(m.objects)+1))
	}
	key := kind + "/" + meta.GetNamespace() + "/" + meta.GetName()
	if first, is := m.at[key]; is { // as in the overlays of kustomize, of which the output should be checked
		fmt.Fprintf(m.log, "%s:%d: %s is in %s:%d, too, which is the one that counts\n", safe(at.file), at.line, safe(key), safe(first.file), first.line)
		return nil
	}
	m.at[key] = at
	m.objects = append(m.objects, o)
	return nil
}

// each evaluates the workloads of the manifests.
func (m *manifests) each(f func(*decide.Evaluation)) error {
	x := ingest.NewIndex(clock.RealClock{})
	x.Within(ingest.Scope{Kinds: kind.BuiltIn()})
	replay := ingest.NewReplay(x, newDigester())
	var some []runtime.Object
	for i, o := range m.objects {
		switch k := kind.Table(kind.BuiltIn()).OfObject(o); o.(type) {
		case *corev1.ConfigMap, *corev1.Secret, *corev1.Namespace:
		default:
			if k == nil {
				continue
			}
		}
		if meta, ok := o.(metav1.Object); ok {
			meta.SetResourceVersion(fmt.Sprint(i + 1))
		}
		some = append(some, o)
	}
	if err := replay.List(fmt.Sprint(len(m.objects)+1), some...); err != nil {
		return err
	}
	x.Read(func(v decide.Evaluator) {
		v.Graph.EachWorkload(func(w *dependency.Workload) { f(v.Evaluate(w)) })
	})
	return nil
}

// check returns the findings, by file and line.
func (m *manifests) check() (out []finding, err error) {
	out = m.invalid
	err = m.each(func(e *decide.Evaluation) {
		w := e.Workload
		at := m.at[string(w.Kind)+"/"+w.Namespace+"/"+w.Name]
		add := func(rule, message string) {
			out = append(out, finding{at.file, at.line, w.Namespace, strings.ToLower(string(w.Kind)) + "/" + w.Name, rule, message})
		}
		for i := range e.Sources {
			switch s := &e.Sources[i]; {
			case !s.Missing || s.Awaited || s.Kind == dependency.ConfigMap && s.Name == "kube-root-ca.crt": // each namespace has it
			case len(s.MissingKeys) > 0:
				add("KeyMissing", fmt.Sprintf("%s %s lacks %s", s.Kind, s.Name, strings.Join(s.MissingKeys, ", ")))
			default:
				add("SourceMissing", fmt.Sprintf("%s %s is missing", s.Kind, s.Name))
			}
		}
		for _, problem := range e.Policy.Problems {
			add("InvalidAnnotation", problem)
		}
		for _, remark := range e.Policy.Remarks {
			add("SuspiciousAnnotation", remark)
		}
	})
	slices.SortStableFunc(out, func(a, b finding) int {
		return strings.Compare(fmt.Sprintf("%s:%09d", a.File, a.Line), fmt.Sprintf("%s:%09d", b.File, b.Line))
	})
	return out, err
}

// complete adds what the manifests lack and the cluster has.
func (p *plugin) complete(ctx context.Context, m *manifests) error {
	kube, err := p.kube()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var lacking []dependency.SourceKey
	err = m.each(func(e *decide.Evaluation) {
		for i := range e.Sources {
			if s := &e.Sources[i]; s.Missing && s.Source == nil {
				lacking = append(lacking, dependency.SourceKey{Kind: s.Kind, Namespace: e.Workload.Namespace, Name: s.Name})
			}
		}
	})
	if err != nil {
		return err
	}
	for _, key := range lacking {
		at := string(key.Kind) + "/" + key.Namespace + "/" + key.Name
		if _, is := m.at[at]; is {
			continue
		}
		var o runtime.Object
		switch key.Kind {
		case dependency.ConfigMap:
			o, err = kube.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		case dependency.Secret:
			o, err = kube.CoreV1().Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		default: // its content is not in the cluster
			continue
		}
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			m.objects = append(m.objects, o)
			m.at[at] = position{}
		}
	}
	return nil
}
