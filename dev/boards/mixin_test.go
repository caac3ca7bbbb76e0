package boards_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"

	"github.com/fencepost-gpu/fencepost/dev/boards"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// The mixin has every board, every alert with the address of its board, and every
// recording rule.
func TestTheMixinHasAllBoardsAndRules(t *testing.T) {
	vm := jsonnet.MakeVM()
	vm.Importer(&jsonnet.FileImporter{JPaths: []string{root + "/dashboards"}})
	text := must.Get(vm.EvaluateAnonymousSnippet("test", `
local mixin = (import 'mixin.libsonnet') + { _config+:: { grafanaURL: 'https://grafana.example.com' } };
{ boards: mixin.grafanaDashboards, alerts: mixin.prometheusAlerts.groups, records: mixin.prometheusRules.groups }`))(t)
	type group struct {
		Rules []struct {
			Alert, Record, Expr string
			Annotations         map[string]string
		}
	}
	var mixin struct {
		Boards          map[string]struct{ UID string }
		Alerts, Records []group
	}
	must.Do(t, json.Unmarshal([]byte(text), &mixin))
	for _, b := range boards.Boards() {
		if uid := "fencepost-" + b.File; mixin.Boards[uid+".json"].UID != uid {
			t.Errorf("the mixin lacks the board %s", b.File)
		}
	}
	exprs := map[string]string{}
	for _, g := range append(mixin.Alerts, mixin.Records...) {
		for _, r := range g.Rules {
			exprs[r.Alert+r.Record] = r.Expr
			if r.Alert != "" && !strings.HasPrefix(r.Annotations["dashboard_url"], "https://grafana.example.com/d/fencepost-") {
				t.Errorf("%s leads to %s", r.Alert, r.Annotations["dashboard_url"])
			}
		}
	}
	for _, a := range boards.Alerts() {
		if exprs[a.Name] != a.Expr {
			t.Errorf("%s is %q in the mixin", a.Name, exprs[a.Name])
		}
	}
	for _, r := range boards.Records() {
		if exprs[r.Name] != r.Expr {
			t.Errorf("%s is %q in the mixin", r.Name, exprs[r.Name])
		}
	}
	if want := len(boards.Alerts()) + len(boards.Records()); len(exprs) != want || len(mixin.Boards) != len(boards.Boards()) {
		t.Errorf("%d rules, want %d; %d boards", len(exprs), want, len(mixin.Boards))
	}
}
