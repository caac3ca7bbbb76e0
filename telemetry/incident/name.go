package incident

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/rotated"
)

// The pattern of our names: the time, the number of the incident, the kind.
// The folder removes nothing else.
var (
	namePattern = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-\d{6,20}-[a-z0-9-]{1,40}\.json$`)
	notInName   = regexp.MustCompile(`[^a-z0-9-]+`)
)

// fileName is an incident's name in a folder. Names sort by time.
func fileName(f *core.Finding, number uint64) string {
	kind := notInName.ReplaceAllString(strings.ToLower(string(f.Kind)), "-")
	return fmt.Sprintf("%s-%06d-%s.json", instant(f.Time).Format(rotated.NameTime), number, cmp.Or(kind[:min(len(kind), 40)], "unknown"))
}

// IsFile reports whether a name is of the form that [Writer] gives to files.
func IsFile(name string) bool { return namePattern.MatchString(name) }
