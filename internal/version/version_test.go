package version

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionIsFoundWhereverTheModuleStands(t *testing.T) {
	other := debug.Module{Path: "example.com/service", Version: "v9.9.9"}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.0.0":  {Main: debug.Module{Path: module, Version: "v1.0.0"}},
		"(devel)": {Main: debug.Module{Path: module}},
		"v1.2.3":  {Main: other, Deps: []*debug.Module{&other, {Path: module, Version: "v1.2.3"}}},
		"v1.2.4":  {Main: other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}}}},
		"unknown": {Main: other},
	} {
		if got := in(info); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
	local := &debug.BuildInfo{Main: other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../fork"}}}}
	if got := in(local); got != "(devel)" {
		t.Errorf("replaced by a folder: %q", got)
	}
	if Fencepost() == "" {
		t.Error("this program has no version")
	}
}
