package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeNVCC builds programs that print a result, as fakeBench and fakePython do, but
// none of what BROKEN names. fakeRatio prints what it is told and given.
const (
	fakeNVCC = `#!/bin/sh
case "$*" in --version) exit ;; *"$BROKEN"*) echo "cannot compile $BROKEN" >&2; exit 1 ;; esac
while [ $# -gt 1 ]; do
	[ "$1" != -o ] || { printf '#!/bin/sh\necho BenchmarkGPUPeers/pair/%s 1 2 ns/op\n' "${2#bin/}-arena" >"$2"; chmod +x "$2"; }
	shift
done
`
	fakePython = `#!/bin/sh
[ "$1" = -c ] || { echo '#!/bin/sh' >"$2/torch_peer"; chmod +x "$2/torch_peer"; }
`
	fakeBench = `#!/bin/sh
echo BenchmarkGPUPeers/pair/fencepost 1 2 ns/op
exit "${BENCH_EXIT:-0}"
`
	fakeRatio = `#!/bin/sh
echo "table of $2 from"; cat "$3"
`
)

// peersRun runs tools/peers/run over the fakes and returns what it printed and its exit code.
func peersRun(t *testing.T, variables ...string) (out string, code int) {
	t.Helper()
	here := t.TempDir()
	text, err := os.ReadFile("../../../tools/peers/run")
	if err != nil {
		t.Fatal(err)
	}
	write(t, here, map[string]string{"run": string(text), "rmm/LICENSE": "", "bench.test": fakeBench, "benchratio": fakeRatio,
		"tools/nvcc": fakeNVCC, "tools/python3": fakePython, "tools/nvidia-smi": "#!/bin/sh\n"})
	path := "PATH=" + filepath.Join(here, "tools") + string(os.PathListSeparator) + os.Getenv("PATH")
	return bash(t, here, append([]string{path, "BROKEN=nothing", "ROUNDS=3"}, variables...), "run", "out")
}

func TestPeersRunInTurnAndMakeOneTable(t *testing.T) {
	out, code := peersRun(t)
	want := "table of rmm-arena from\n" + strings.Repeat("BenchmarkGPUPeers/pair/rmm-arena 1 2 ns/op\nBenchmarkGPUPeers/pair/driver-arena 1 2 ns/op\nBenchmarkGPUPeers/pair/fencepost 1 2 ns/op\n", 3)
	if code != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestAPeerThatFailsIsNamedAndTheOthersGoOn(t *testing.T) {
	out, code := peersRun(t, "BROKEN=rmm.cpp", "BENCH_EXIT=3")
	for _, want := range []string{"== rmm is left out", "cannot compile rmm.cpp", "== fencepost is left out: it failed in round 3", "exit status 3", "table of driver from\n"} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q:\n%s", code, want, out)
		}
	}
	if got := strings.Count(out, "ns/op\n"); got != 6 {
		t.Errorf("%d results, want those of two peers in three rounds:\n%s", got, out)
	}
}

func TestPeersRefuseANumberOfRoundsThatIsNone(t *testing.T) {
	if out, code := peersRun(t, "ROUNDS=many"); code != 2 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestGPUPeersBringsWhatItIsTold(t *testing.T) {
	env, _ := tools(t, "RMM_DIR=rmm")
	here := t.TempDir()
	write(t, here, map[string]string{"rmm/LICENSE": "", "rmm/cpp/include/rmm/a.hpp": "", "rmm/cpp/src/a.cpp": "", "other/file": ""})
	script := filepath.Join(scripts(t), "gpu-peers")
	out, code := bash(t, here, env, script, "dist/peers")
	for _, name := range []string{"run", "loops.hpp", "bench.test", "benchratio", "rmm/LICENSE", "rmm/cpp/include/rmm/a.hpp", "rmm/cpp/src/a.cpp"} {
		if _, err := os.Stat(filepath.Join(here, "dist/peers", name)); code != 0 || err != nil {
			t.Errorf("exit code %d, %v:\n%s", code, err, out)
		}
	}
	if out, code := bash(t, here, env, script, "other"); code != 2 {
		t.Errorf("a folder with other things was taken, exit code %d:\n%s", code, out)
	}
}
