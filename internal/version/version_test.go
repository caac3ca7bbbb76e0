package version

import (
	"runtime/debug"
	"strings"
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

func TestTheLineSaysWhatWasBuiltFromWhat(t *testing.T) {
	own := debug.Module{Path: module, Version: "v1.0.0"}
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	clean := []debug.BuildSetting{revision[0], {Key: "vcs.modified", Value: "false"}}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.0.0 go9 linux/arm64":                                  {Main: own},
		"v1.0.0 go9 linux/arm64, revision 0123456789ab":           {Main: own, Settings: clean},
		"v1.0.0 go9 linux/arm64, revision 0123456789ab, modified": {Main: own, Settings: revision},
		"v1.2.3 go9 linux/arm64": {Main: debug.Module{Path: "example.com/service"}, Settings: revision,
			Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}},
		"unknown go9 linux/arm64": {},
	} {
		if got := line(info, "go9", "linux/arm64"); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
	if got := Line(); !strings.HasPrefix(got, Fencepost()+" go") {
		t.Errorf("this program: %q", got)
	}
}
