package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const outdated = `: run "go -C tools/kubernetes run ./generate"`

func TestTheGeneratedFilesAreCurrent(t *testing.T) {
	want, err := Generate(root)
	must(t, err)
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != string(text) {
			t.Errorf("%s is not what the boards and rules say (%v)"+outdated, name, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, Folder, "kubernetes", "*"))
	must(t, err)
	if _, err := os.Stat(filepath.Join(root, Folder, "kustomization.yaml")); err == nil {
		there = append(there, filepath.Join(root, Folder, "kustomization.yaml"))
	}
	for _, file := range there {
		name, err := filepath.Rel(root, file)
		must(t, err)
		if want[filepath.ToSlash(name)] == nil {
			t.Errorf("%s is of a board or of rules that are gone"+outdated, name)
		}
	}
	if want[Folder+"/kustomization.yaml"] != nil {
		checkBoards(t, root)
	}
}

// checkBoards demands that what a cluster would be given is every board and
// every rule of a repository, and nothing else.
func checkBoards(t *testing.T, root string) {
	t.Helper()
	objects := build(t, filepath.Join(root, Folder))
	boards, rules := map[string]string{}, map[string]monitoring.PrometheusRuleSpec{}
	for _, o := range objects {
		switch o := o.(type) {
		case *core.ConfigMap:
			size := 0
			for file, text := range o.Data {
				boards[file] = text
				size += len(text)
			}
			if len(o.Data) != 1 || size > 900<<10 || o.Labels[boardLabel] != "1" || o.Annotations[folderNote] != boardFolder {
				t.Errorf("%s: %d files of %d bytes, labels %v, annotations %v", o.Name, len(o.Data), size, o.Labels, o.Annotations)
			}
		case *monitoring.PrometheusRule:
			rules[o.Name] = o.Spec
		default:
			t.Errorf("a %T among boards and rules", o)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, Folder, "*.json"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if boards[filepath.Base(file)] != string(text) || !json.Valid(text) {
			t.Errorf("%s is not in a ConfigMap as it is, or is no JSON", file)
		}
	}
	sources, err := filepath.Glob(filepath.Join(root, Folder, "rules", "*.yaml"))
	must(t, err)
	for _, file := range sources {
		text, err := os.ReadFile(file)
		must(t, err)
		var want monitoring.PrometheusRuleSpec
		must(t, yaml.UnmarshalStrict(text, &want))
		if got := rules[ruleName(file)]; len(want.Groups) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d groups, want %d", file, len(got.Groups), len(want.Groups))
		}
	}
	if len(boards) != len(files) || len(rules) != len(sources) {
		t.Errorf("%d boards of %d, %d files of rules of %d", len(boards), len(files), len(rules), len(sources))
	}
}

// The same with boards and rules that are the test's, whatever the repository
// has.
func TestBoardsAndRulesBecomeObjects(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.json":               `{"title": "A"}`,
		"b-c.json":             `{"title": "B \"c\" ${datasource}"}`,
		"rules/fencepost.yaml": "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n    for: 5m\n    labels: {severity: page}\n    annotations: {summary: \"{{ $value }}\"}\n",
		"rules/other.yaml":     "groups:\n- name: h\n  interval: 30s\n  rules:\n  - record: r\n    expr: sum(up)\n",
		"rules/tests/x.yaml":   "not: rules\n",
	} {
		put(t, filepath.Join(dir, Folder, name), text)
	}
	files, err := Generate(dir)
	must(t, err)
	for name, text := range files {
		put(t, filepath.Join(dir, name), string(text))
	}
	if len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
	checkBoards(t, dir)
}

func TestARepositoryWithoutBoardsAndRulesGetsNoFiles(t *testing.T) {
	if files, err := Generate(t.TempDir()); err != nil || len(files) != 0 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func TestARuleThatPrometheusWouldRefuseIsAnError(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, Folder, "rules", "x.yaml"), "groups:\n- name: g\n  rules:\n  - alert: A\n    expression: up\n")
	if files, err := Generate(dir); err == nil {
		t.Errorf("an unknown field was taken: %v", files)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o750))
	must(t, os.WriteFile(file, []byte(text), 0o600))
}
