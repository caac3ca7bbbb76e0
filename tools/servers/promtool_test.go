package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = root + "/dashboards/rules/fencepost.yaml"
	rulesTest = root + "/dashboards/rules/tests/fencepost.yaml"
)

// promtool runs it in the repository's top and returns what it says.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	run := exec.CommandContext(t.Context(), tool(t, "promtool"), args...)
	text, err := run.CombinedOutput()
	return string(text), err
}

func TestPromtoolTakesTheRules(t *testing.T) {
	if said, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if said, err := promtool(t, "test", "rules", rulesTest); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// The configuration is checked where its rules are: in the container they are
// mounted elsewhere.
func TestPromtoolTakesTheConfigurationWithItsRules(t *testing.T) {
	text, err := os.ReadFile(prometheusFile)
	must(t, err)
	rules, err := filepath.Abs(root + "/dashboards/rules")
	must(t, err)
	moved := strings.Replace(string(text), "/etc/prometheus/rules/", rules+"/", 1)
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	must(t, os.WriteFile(file, []byte(moved), 0o600))
	said, err := promtool(t, "check", "config", "--lint=all", "--lint-fatal", file)
	if err != nil || moved == string(text) || !strings.Contains(said, "1 rule files found") {
		t.Errorf("%v\n%s", err, said)
	}
}

// Without these the tests above could pass because nothing is looked at.
func TestBrokenRulesAreSeen(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	must(t, err)
	for name, broken := range map[string]string{
		"an expression that does not parse": strings.Replace(string(text), "== 1", "== == 1", 1),
		"a rule twice":                      string(text) + string(text)[strings.Index(string(text), "      - alert:"):],
		"an unknown function in a text":     strings.Replace(string(text), "| humanize1024", "| humanise", 1),
	} {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		must(t, os.WriteFile(file, []byte(broken), 0o600))
		if said, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", file); err == nil || broken == string(text) {
			t.Errorf("%s was taken: %s", name, said)
		}
	}
}

// ruleTests is promtool's form, as far as it is looked at here.
type ruleTests struct{ Tests []ruleTest }

type ruleTest struct {
	Name          string
	InputSeries   []derivedSeries `yaml:"input_series"`
	AlertRuleTest []alertTest     `yaml:"alert_rule_test"`
}

type alertTest struct {
	EvalTime  string `yaml:"eval_time"`
	Alertname string `yaml:"alertname"`
	ExpAlerts []struct {
		ExpLabels map[string]string `yaml:"exp_labels"`
	} `yaml:"exp_alerts"`
}

// Each alert is tested firing and not firing.
func TestEveryAlertHasItsUnitTests(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	var tests ruleTests
	for name, to := range map[string]any{rulesFile: &rules, rulesTest: &tests} {
		text, err := os.ReadFile(name)
		must(t, err)
		must(t, yaml.Unmarshal(text, to))
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				silent[a.Alertname] = true
			}
		}
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" && (!fires[r.Alert] || !silent[r.Alert]) {
				t.Errorf("%s: tested firing: %v, tested silent: %v", r.Alert, fires[r.Alert], silent[r.Alert])
			}
		}
	}
}

// The zeros of a tag are what tells a batch from a leak.
func TestABatchWithoutItsZerosLooksLikeALeak(t *testing.T) {
	tests, err := os.ReadFile(rulesTest)
	must(t, err)
	rules, err := filepath.Abs(rulesFile)
	must(t, err)
	without := strings.NewReplacer("0000000x9 0 ", "0000000x9 _ ", "[../fencepost.yaml]", "["+rules+"]").Replace(string(tests))
	file := filepath.Join(t.TempDir(), "tests.yaml")
	must(t, os.WriteFile(file, []byte(without), 0o600))
	if said, err := promtool(t, "test", "rules", file); err == nil || !strings.Contains(said, `tag="batch"`) {
		t.Errorf("%v\n%s", err, said)
	}
}

// A rule that is wrong in one number or label fails the unit tests.
func TestTheUnitTestsNoticeAWrongRule(t *testing.T) {
	rules, err := os.ReadFile(rulesFile)
	must(t, err)
	tests, err := os.ReadFile(rulesTest)
	must(t, err)
	for right, wrong := range map[string]string{
		`state="poisoned"`: `state="ok"`, `1.02 * min_over_time`: `2 * min_over_time`, `> 0.01`: `> 0.9`, `[6h]`: `[1h]`, `sum without (tag) `: ``,
		`[30m]) == 0`: `[30m]) >= 0`, `> 2097152`: `> 0`, `> 1048576`: `> 0`, `[15m] offset 15m) > 1048576`: `[15m]) > 1048576`, `event="relieved"`: `event="evicted"`, ` for: 30m`: ` for: 1m`, ` for: 15m`: ` for: 5h`, ` for: 10m`: ` for: 1s`, `keep_firing_for: 15m`: `keep_firing_for: 5h`,
	} {
		broken := strings.ReplaceAll(string(rules), right, wrong)
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "fencepost.yaml"), []byte(broken), 0o600))
		must(t, os.Mkdir(filepath.Join(dir, "tests"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "tests", "fencepost.yaml"), tests, 0o600))
		if said, err := promtool(t, "test", "rules", filepath.Join(dir, "tests", "fencepost.yaml")); err == nil || broken == string(rules) {
			t.Errorf("%s", fmt.Sprintf("%q for %q passes\n%s", wrong, right, said))
		}
	}
}
