package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/operators"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Variable is an environment variable that overrides a field of [Config].
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
	{"FENCEPOST_RESOURCE", "Resource", "the backend: async, pool or direct"},
	{"FENCEPOST_POOL_LIMIT", "Pool.Limit", "bytes of the device that the pool may hold"},
	{"FENCEPOST_POOL_TRIM_AFTER", "Pool.TrimAfter", "time after which the pool gives free memory back"},
	{"FENCEPOST_STREAMS", "Streams", "stream leases at a time"},
	{"FENCEPOST_DEVICE_ORDER", "DeviceOrder", "waits for compute-sanitizer: 1 or 0"},
	{"FENCEPOST_BUDGET", "Budget", "bytes that may be charged"},
	{"FENCEPOST_GUARD", "Guard", "the debug guard's mode"},
	{"FENCEPOST_GUARD_POLICY", "GuardPolicy", "what follows a finding: report, refuse or stop"},
	{"FENCEPOST_GUARD_TAGS", "GuardConfig.HuntTags", "tags to hunt, separated by commas"},
	{"FENCEPOST_INCIDENTS", "Incidents", "the folder for incident files"},
	{"FENCEPOST_TRACE_LEVEL", "TraceLevel", "what becomes a span: off, launches or operations"},
	{"FENCEPOST_TRACE_LAYERS", "TraceLayers", "a span of each layer: 1 or 0"},
	{"FENCEPOST_HISTORY", "History", "log records kept in memory"},
}

// Variables lists the environment variables that [Open] looks at.
func Variables() []Variable { return slices.Clone(variables[:]) }

// applyEnvironment overrides the fields that have a variable. A variable that
// is set to nothing counts as not set.
func (c *Config) applyEnvironment() error {
	for _, v := range variables {
		value := os.Getenv(v.Name)
		if value == "" {
			continue
		}
		if err := set(c.field(v.Field), value); err != nil {
			return invalid(v.Field, fmt.Sprintf("%q: %v", value, err))
		}
	}
	return nil
}

// field is the address of the field of that name, of one within another "Outer.Inner".
func (c *Config) field(name string) any {
	at := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(name, ".") {
		at = at.FieldByName(part)
	}
	return at.Addr().Interface()
}

// invalid refuses a field. It names the variable instead where that is set,
// because then it is the variable that the reader must change.
func invalid(field, reason string) error {
	for _, v := range variables {
		if v.Field == field && os.Getenv(v.Name) != "" {
			field = v.Name
		}
	}
	return &core.InvalidRequestError{Op: "fencepost.Open", Field: field, Reason: reason}
}

// set reads a variable's value into the field at that address.
func set(field any, value string) (err error) {
	switch to := field.(type) {
	case *string:
		*to = value
	case *int:
		if *to, err = strconv.Atoi(value); err != nil {
			err = errors.New("write a whole number")
		}
	case *bool:
		if *to, err = strconv.ParseBool(value); err != nil {
			err = errors.New("write 1 or 0")
		}
	case *uint64:
		*to, err = ParseBytes(value)
	case *time.Duration:
		if *to, err = time.ParseDuration(value); err != nil {
			err = errors.New("write a time with its unit, such as 500ms, 30s or 5m")
		}
	case *[]core.Tag:
		*to, err = operators.ParseTags(value)
	case *telemetry.Level:
		if *to, err = telemetry.ParseLevel(value); err != nil {
			err = errors.New("say off, launches or operations")
		}
	}
	return err
}

// ParseBytes reads a size such as "1073741824", "1024MiB" or "1 GiB".
func ParseBytes(s string) (uint64, error) {
	unit := uint64(1)
	digits := strings.TrimSpace(s)
	for suffix, bytes := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = strings.TrimSpace(rest), bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a size: write whole bytes, or a whole number with KiB, MiB, GiB or TiB")
	}
	high, total := bits.Mul64(n, unit)
	if high != 0 {
		return 0, fmt.Errorf("not a size: more than 64 bits can count")
	}
	return total, nil
}

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
	return fmt.Sprintf("%s is no variable of Fencepost and has no effect; the nearest known name is %s", cut(u.Name), u.Nearest)
}

// cut is a name as it can be printed.
func cut(name string) string {
	const longest = 64
	if len(name) > longest {
		return fmt.Sprintf("%+q...", name[:longest])
	}
	if quoted := fmt.Sprintf("%+q", name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// UnknownVariables are the FENCEPOST_ variables of environ, as os.Environ
// returns it, that are set to something and that neither [Variables] lists nor
// anything else of this module reads, sorted: typing errors, or of another
// version. [Open] logs a warning that names them, once each time, to
// Config.Findings.Logger, or to the default logger of log/slog if there is
// none; it does not refuse them.
func UnknownVariables(environ []string) []UnknownVariable {
	known := []string{libcuda.PathVariable}
	for _, v := range variables {
		known = append(known, v.Name)
	}
	var unknown []UnknownVariable
	for _, entry := range environ {
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

// warnOfUnknown logs the unknown variables as one record.
func (c *Config) warnOfUnknown(environ []string) {
	unknown := UnknownVariables(environ)
	if len(unknown) == 0 {
		return
	}
	logger := cmp.Or(c.Findings.Logger, slog.Default())
	const named = 8
	var text []string
	for _, u := range unknown[:min(len(unknown), named)] {
		text = append(text, u.String())
	}
	if more := len(unknown) - named; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	logger.LogAttrs(context.Background(), slog.LevelWarn, "fencepost: "+strings.Join(text, "; "), slog.Int("variables", len(unknown)))
}
