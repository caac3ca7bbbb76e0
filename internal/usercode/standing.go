package usercode

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// module is the begin of the names of this module's functions.
const module = "github.com/fencepost-gpu/fencepost"

// Standing says which code, other than this module's, a goroutine with the profiler's label is in:
// its functions, the innermost first, and the line in the outermost. It is empty if there is none.
// It looks at all goroutines of the process, so it is for errors that are rare.
func Standing(label, value string) string {
	var profile bytes.Buffer
	if pprof.Lookup("goroutine").WriteTo(&profile, 1) != nil {
		return ""
	}
	mark := fmt.Sprintf("%q:%q", label, value)
	for goroutine := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(goroutine, mark) {
			continue
		}
		if in := entered(goroutine); in != "" {
			return in
		}
	}
	return ""
}

// entered is the code that the innermost [Call] of a goroutine of a profile has entered.
func entered(goroutine string) string {
	var names, lines []string
	for line := range strings.Lines(goroutine) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "#" || !strings.HasPrefix(f[1], "0x") {
			continue
		}
		name, _, _ := strings.Cut(f[2], "+0x")
		if name == module+"/internal/usercode.Call" {
			break
		}
		names, lines = append(names, name), append(lines, strings.Join(f[3:], " "))
	}
	last := len(names)
	for last > 0 && ours(names[last-1]) {
		last--
	}
	if last == 0 {
		return ""
	}
	return legible.Text(strings.Join(names[:last], ", called by ") + " (" + lines[last-1] + ")")
}

// ours reports whether a function is this module's, and of none of its tests.
func ours(name string) bool {
	pkg, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
	return strings.HasPrefix(name, module) && !strings.HasSuffix(pkg, "_test")
}
