package fencepost

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// prefix is that of all variables of this module.
const prefix = "FENCEPOST_"

// toolVariables are read by tests, scripts and tools of this module, which may
// be set where its programs run.
var toolVariables = [...]string{"CHROMIUM", "CORETEST_MUTANT", "CORPUS", "CORPUS_RESULTS", "CORPUS_TIER", "FENCES", "GPU_ALONE", "GPU_DRY_RUN",
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
