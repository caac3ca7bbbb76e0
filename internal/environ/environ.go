// Package environ knows the environment variables of the module: those that override
// fields of fencepost.Config, those that its tools read, and the typing errors.
package environ

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// Variable is an environment variable that overrides a field of fencepost.Config.
type Variable struct {
	Name, Field string
	// Meaning says in a few words what it sets.
	Meaning string
}

var variables = [...]Variable{
	{"FENCEPOST_DEVICE", "Device", "the device: auto, cuda or sim"},
	{"FENCEPOST_ORDINAL", "Ordinal", "the device's number"},
	{"FENCEPOST_SIM_BYTES", "Sim.Bytes", "memory of the simulated device"},
	{"FENCEPOST_SIM_UUID", "Sim.UUID", "what the simulated device says it is"},
	{"FENCEPOST_RESOURCE", "Resource", "the backend: pool, async or direct"},
	{"FENCEPOST_POOL_LIMIT", "Pool.Limit", "bytes of the device that the pool may hold"},
	{"FENCEPOST_POOL_TRIM_AFTER", "Pool.TrimAfter", "time after which the pool gives free memory back"},
	{"FENCEPOST_STREAMS", "Streams", "stream leases at a time"},
	{"FENCEPOST_DEVICE_ORDER", "DeviceOrder", "waits for compute-sanitizer: 1 or 0"},
	{"FENCEPOST_BUDGET", "Budget", "bytes that may be charged"},
	{"FENCEPOST_PATIENCE", "Patience", "how long a request waits for memory that is freed and not passed by the device"},
	{"FENCEPOST_RESERVE_PASSES", "ReservePasses", "jobs that may pass one that waits for a larger reservation"},
	{"FENCEPOST_LEARNED", "LearnedFile", "file that keeps what jobs have needed, for Admit"},
	{"FENCEPOST_GUARD", "Guard", "the debug guard's mode"},
	{"FENCEPOST_GUARD_POLICY", "GuardPolicy", "what follows a finding: report, refuse or stop"},
	{"FENCEPOST_FAULTS", "Faults", "whether the driver's core dumps name faults of kernels: off or name"},
	{"FENCEPOST_KERNEL_LOG", "KernelLog", "whether the Xids of a lost device are read from the kernel's log: 1 or 0"},
	{"FENCEPOST_GUARD_TAGS", "GuardConfig.HuntTags", "tags to hunt, separated by commas"},
	{"FENCEPOST_INCIDENTS", "Incidents", "the folder for incident files"},
	{"FENCEPOST_TRACE_LEVEL", "TraceLevel", "what becomes a span: off, launches or operations"},
	{"FENCEPOST_TIME_ONE_IN", "TimeOneIn", "launches of which one is timed on the device"},
	{"FENCEPOST_TRACE_LAYERS", "TraceLayers", "a span of each layer: 1 or 0"},
	{"FENCEPOST_HISTORY", "History", "log records kept in memory"},
	{"FENCEPOST_HOSTS", "Hosts", "names by which the operators' pages may be asked for"},
}

// Variables lists the environment variables that fencepost.Open looks at.
func Variables() []Variable { return slices.Clone(variables[:]) }

// prefix is that of all variables of this module.
const prefix = "FENCEPOST_"

// toolVariables are read by tests, scripts and tools of this module, which may
// be set where its programs run.
var toolVariables = [...]string{"CHROMIUM", "CORETEST_MUTANT", "CORPUS", "CORPUS_RESULTS", "CORPUS_TIER", "FENCES", "GPU_ALONE", "GPU_DRY_RUN", "GPU_RESOURCE",
	"MUTANT", "PLANT", "REQUIRE", "REQUIRE_CUDA", "SANITIZER", "SEED", "SOAK"}

// ofService matches what Kubernetes and Docker put into every container beside
// a service whose name begins with "fencepost".
var ofService = regexp.MustCompile(`^FENCEPOST_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// UnknownVariable is a FENCEPOST_ variable that nothing reads.
type UnknownVariable struct {
	Name string
	// Nearest is the known variable whose name is the most alike.
	Nearest string
}

// String says so in a sentence, without the value.
func (u UnknownVariable) String() string {
	return fmt.Sprintf("%s is no variable of Fencepost and has no effect; the nearest known name is %s",
		legible.Name(u.Name), u.Nearest)
}

// Unknown are the FENCEPOST_ variables of env, as os.Environ
// returns it, that are set to something and that neither [Variables] lists nor
// anything else of this module reads, sorted: typing errors, or of another
// version. Open logs a warning that names them, once each time, to
// Config.Findings.Logger, or to the default logger of log/slog if there is
// none; it does not refuse them.
func Unknown(env []string) []UnknownVariable {
	known := []string{libcuda.PathVariable}
	for _, v := range variables {
		known = append(known, v.Name)
	}
	var unknown []UnknownVariable
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || value == "" || slices.Contains(known, name) || slices.Contains(toolVariables[:], rest) || ofService.MatchString(name) {
			continue
		}
		nearest := slices.MinFunc(known, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
		unknown = append(unknown, UnknownVariable{Name: name, Nearest: nearest})
	}
	slices.SortFunc(unknown, func(a, b UnknownVariable) int { return cmp.Compare(a.Name, b.Name) })
	return unknown
}

// distance is how many letters must be changed, added or taken away to make b
// of a, whatever their case. Of a name that is much too long the end does not
// count.
func distance(a, b string) int {
	a = strings.ToUpper(a[:min(len(a), 64)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
