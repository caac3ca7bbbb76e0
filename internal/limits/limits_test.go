package limits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const gib = 1 << 30

var h200 = Device{Ordinal: 1, PCIBusID: "0000:19:00.0"}

// machine is a reader of h200's limits on a machine with these files.
func machine(t testing.TB, files map[string]string) *Reader {
	t.Helper()
	r := New(h200, nil)
	r.root, r.environment = t.TempDir(), func(string) string { return "" }
	for name, text := range files {
		name = filepath.Join(r.root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return r
}

func TestLimitsOfAllControlGroupsOnTheWayAreRead(t *testing.T) {
	r := machine(t, map[string]string{
		"proc/self/cgroup":                "12:memory:/old\n0::/pods/one\n",
		"sys/fs/cgroup/pods/one/dmem.max": "nvidia/0000:18:00.0/vidmem 7\nnvidia/0000:19:00.0/vidmem max\n",
		"sys/fs/cgroup/pods/dmem.max":     "nvidia/0000:18:00.0/vidmem 7\nnvidia/00000000:19:00.0/sysmem 8\nnvidia/00000000:19:00.0/vidmem 4294967296\n",
		"sys/fs/cgroup/pods/dmem.current": "nvidia/0000:18:00.0/vidmem 9\nnvidia/00000000:19:00.0/vidmem 1073741824\n",
		"sys/fs/cgroup/dmem.max":          "nvidia/0000:19:00.0/vidmem 8589934592\n", // of a container, which sees its own as the root
		"sys/fs/cgroup/other/dmem.max":    "nvidia/0000:19:00.0/vidmem 1\n",
	})
	r.environment = func(name string) string {
		return map[string]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1M, 1=3G,2=4G"}[name]
	}
	r.groups = func(group string) (limit, used uint64, ok bool) {
		return 6 * gib, gib / 2, group == "/sys/fs/cgroup/pods"
	}
	want := []readings.MemoryLimit{
		{Source: "cgroup", Name: "/sys/fs/cgroup/pods/dmem.max", Bytes: 4 * gib, Used: gib},
		{Source: "nvml", Name: "/sys/fs/cgroup/pods", Bytes: 6 * gib, Used: gib / 2},
		{Source: "cgroup", Name: "/sys/fs/cgroup/dmem.max", Bytes: 8 * gib},
		{Source: "mps", Name: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Bytes: 3 * gib},
	}
	if diff := cmp.Diff(want, r.Read()); diff != "" {
		t.Errorf("the limits differ (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotUnderstoodIsNoLimit(t *testing.T) {
	const self, limit = "0::/a\n", "nvidia/0000:19:00.0/vidmem 5\n"
	if r := machine(t, map[string]string{"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": limit}); len(r.Read()) != 1 {
		t.Fatalf("read %+v, want the limit", r.Read())
	}
	for name, files := range map[string]map[string]string{
		"nothing":       {},
		"no group":      {"proc/self/cgroup": "", "sys/fs/cgroup/a/dmem.max": limit},
		"outside":       {"proc/self/cgroup": "0::/../a\n", "sys/fs/cgroup/a/dmem.max": limit, "sys/fs/a/dmem.max": limit},
		"version 1":     {"proc/self/cgroup": "4:devices:/a\n", "sys/fs/cgroup/a/dmem.max": limit},
		"a long path":   {"proc/self/cgroup": "0::/a" + strings.Repeat("/b", 3000) + "\n", "sys/fs/cgroup/a/dmem.max": limit},
		"huge":          {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": limit + strings.Repeat("x", 1<<20)},
		"a folder":      {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max/file": limit},
		"empty":         {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": ""},
		"too large":     {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": "nvidia/0000:19:00.0/vidmem 18446744073709551616"},
		"negative":      {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": "nvidia/0000:19:00.0/vidmem -1"},
		"no region":     {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": "5\n5 5\n/vidmem 5\n0000:19:00.0 5\n"},
		"a part of it":  {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": "nvidia/1:0000:19:00.0/vidmem 5"},
		"three columns": {"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": "nvidia/0000:19:00.0/vidmem 5 6"},
	} {
		if got := machine(t, files).Read(); len(got) > 0 {
			t.Errorf("%s: read %+v", name, got)
		}
	}
	r := machine(t, map[string]string{"proc/self/cgroup": self, "sys/fs/cgroup/a/dmem.max": limit})
	if r.device.PCIBusID = ""; len(r.Read()) > 0 {
		t.Errorf("of a device without an address: %+v", r.Read())
	}
}

func TestTheVariableOfMPSIsRead(t *testing.T) {
	for value, want := range map[string]uint64{
		"1=2G": 2 * gib, "0=1G,1=512MB": gib / 2, " 1=7m ": 7 << 20, "1=0G": 0,
	} {
		if got, ok := h200.pinned(value); !ok || got != want {
			t.Errorf("%q: %d, %v; want %d", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "2G", "0=1G", "1=", "1=G", "1=5", "1=-1G", "1=1.5G", "1=17179869184G", "1=GM", "1=2GG", "11=2G", "=", ",,", "1"} {
		if got, ok := h200.pinned(value); ok {
			t.Errorf("%q: %d", value, got)
		}
	}
}

func TestALimitAllowsWhatIsHeldAndWhatIsLeft(t *testing.T) {
	for _, c := range []struct{ limit, used, held, want uint64 }{
		{32 * gib, 0, 0, 32*gib - 256<<20},
		{32 * gib, 8 * gib, 0, 24*gib - 256<<20},
		{32 * gib, 8 * gib, 6 * gib, 30*gib - 256<<20}, // others, and the driver, have 2
		{32 * gib, 0, 6 * gib, 32*gib - 256<<20},       // what is held is used, even where it is not told
		{3200, 0, 0, 3100},
		{gib, 2 * gib, gib / 2, gib / 2}, // lowered below what is used
		{0, 0, 0, 1},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64},
	} {
		all := []readings.MemoryLimit{{Bytes: math.MaxUint64}, {Name: "it", Bytes: c.limit, Used: c.used}}
		if least := Allow(all, c.held); least.Allowed != c.want || all[1].Allowed != c.want {
			t.Errorf("%+v: %d allowed", c, least.Allowed)
		}
	}
	if least := Allow(nil, 7); least.Allowed != math.MaxUint64 || least.Name != "" {
		t.Errorf("without limits: %+v", least)
	}
}

// Whatever tree of groups there is, those on the way from the process's own to the root count, and of
// them the one that allows least.
func TestTheLeastLimitOnTheWayCounts(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		files, own := map[string]string{}, ""
		want, held := uint64(math.MaxUint64), random.Uint64N(4*gib)
		for depth := range random.IntN(6) {
			for sibling := range random.IntN(3) {
				files[fmt.Sprintf("sys/fs/cgroup%s/sibling%d/dmem.max", own, sibling)] = "nvidia/0000:19:00.0/vidmem 1\n"
			}
			own += fmt.Sprintf("/g%d", depth)
			if random.IntN(2) == 0 {
				continue
			}
			limit, used := random.Uint64N(16*gib), random.Uint64N(16*gib)
			files["sys/fs/cgroup"+own+"/dmem.max"] = fmt.Sprintf("drm/0000:19:00.0/vram0 2\nnvidia/0000:19:00.0/vidmem %d\n", limit)
			files["sys/fs/cgroup"+own+"/dmem.current"] = fmt.Sprintf("nvidia/0000:19:00.0/vidmem %d\n", used)
			left := int64(limit) - int64(max(used, held)) - int64(min(limit/32, 256<<20))
			want = min(want, max(1, held+uint64(max(0, left))))
		}
		files["proc/self/cgroup"] = "0::" + path.Clean("/"+own) + "\n"
		if got := Allow(machine(t, files).Read(), held).Allowed; got != want {
			t.Fatalf("seed %d: %d allowed of %q, want %d", seed, got, files, want)
		}
	}
}

// FuzzRead feeds both parsers: nothing that a file or variable says may break the reader, or let a
// limit stand that the text does not have.
func FuzzRead(f *testing.F) {
	f.Add("0::/a/b\n", "nvidia/0000:19:00.0/vidmem 5\n", "nvidia/0000:19:00.0/vidmem max\n", "1=2G")
	f.Add("0::/../..\n", "max", "", "0=1G,1=512MB,,=")
	f.Add("0::/\x00\n", " \t\n", "\xff", "1=99999999999999999999G")
	f.Fuzz(func(t *testing.T, self, limit, used, variable string) {
		r := machine(t, map[string]string{"proc/self/cgroup": self, "sys/fs/cgroup/dmem.max": limit, "sys/fs/cgroup/dmem.current": used})
		r.environment = func(string) string { return variable }
		all := r.Read()
		for _, l := range all {
			if l.Source == "cgroup" && !strings.Contains(limit, fmt.Sprint(l.Bytes)) {
				t.Errorf("%d is not in %q", l.Bytes, limit)
			}
		}
		if len(all) > 2 {
			t.Errorf("%d limits of one file and one variable", len(all))
		}
		if got := Allow(all, gib).Allowed; got == 0 {
			t.Error("nothing is allowed, which would be no limit")
		}
	})
}
