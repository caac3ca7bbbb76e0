package debugguard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// Setting is a mode with what can be said about it while the program runs.
type Setting struct {
	Mode Mode
	// SampleBytes is the mean number of bytes between guarded blocks in mode
	// Sample, whatever Config.SampleRate says; zero means what the guard was
	// built with, within that bound.
	SampleBytes uint64
	// Bisect, Delay and Unmap are options of mode Hunt, see [HuntConfig].
	Bisect, Delay, Unmap bool
}

var optionNames = [...]string{"bisect", "delay", "unmap"}

const modesReading = "off, ledger, sample, sample:BYTES, hunt or hunt:OPTIONS, where OPTIONS are bisect, delay and unmap, joined by +"

// options are the fields of the options, in the order of their names.
func (s *Setting) options() [3]*bool { return [...]*bool{&s.Bisect, &s.Delay, &s.Unmap} }

// String is the setting as [ParseMode] reads it: "sample:1048576", say, or
// "hunt:bisect+delay".
func (s Setting) String() string {
	switch {
	case s.Mode == Sample && s.SampleBytes > 0:
		return s.Mode.String() + ":" + strconv.FormatUint(s.SampleBytes, 10)
	case s.Mode != Hunt:
		return s.Mode.String()
	}
	var names []string
	for i, on := range s.options() {
		if *on {
			names = append(names, optionNames[i])
		}
	}
	if len(names) == 0 {
		return s.Mode.String()
	}
	return s.Mode.String() + ":" + strings.Join(names, "+")
}

// check refuses what has no meaning.
func (s Setting) check() error {
	var reason string
	switch {
	case s.Mode > Hunt:
		reason = s.Mode.String() + ": use Off, Ledger, Sample or Hunt"
	case s.Mode != Hunt && (s.Bisect || s.Delay || s.Unmap):
		reason = "bisect, delay and unmap are options of hunt alone"
	case s.Mode != Sample && s.SampleBytes > 0:
		reason = "a number of bytes is for sample alone"
	default:
		return nil
	}
	return &core.InvalidRequestError{Op: "debugguard.Apply", Field: "setting", Reason: reason}
}

// ParseMode reads "off", "ledger", "sample", "sample:BYTES", "hunt" or
// "hunt:OPTION+OPTION", where BYTES is the mean number of bytes between
// samples and the options are bisect, delay and unmap. The error is a
// [core.InvalidRequestError].
func ParseMode(s string) (Setting, error) {
	name, detail, detailed := strings.Cut(s, ":")
	mode := slices.Index(modeNames[:], name)
	if mode < 0 {
		return Setting{}, badMode(s, "say "+modesReading)
	}
	setting := Setting{Mode: Mode(mode)}
	switch {
	case !detailed:
		return setting, nil
	case setting.Mode == Sample:
		bytes, err := strconv.ParseUint(detail, 10, 64)
		if err != nil || bytes == 0 {
			return Setting{}, badMode(s, "sample takes a number of bytes that is not zero")
		}
		setting.SampleBytes = bytes
		return setting, nil
	case setting.Mode == Hunt:
		for name := range strings.SplitSeq(detail, "+") {
			i := slices.Index(optionNames[:], name)
			if i < 0 {
				return Setting{}, badMode(s, "say "+modesReading)
			}
			*setting.options()[i] = true
		}
		return setting, nil
	}
	return Setting{}, badMode(s, "say "+modesReading)
}

func badMode(s, reason string) error {
	return &core.InvalidRequestError{Op: "debugguard.ParseMode", Field: "mode", Reason: legible.Value(s) + ": " + reason}
}

// Mode is how much the guard does.
type Mode uint8

// The modes, in the order of what they see and cost.
const (
	// Off passes everything on.
	Off Mode = iota
	// Ledger keeps the books of blocks and uses on the host.
	Ledger
	// Sample is Ledger, and device guarding of blocks chosen by bytes and of
	// every block of a hunted tag.
	Sample
	// Hunt guards every block and keeps every stack.
	Hunt
)

var modeNames = [...]string{"off", "ledger", "sample", "hunt"}

// String is the mode's name as [ParseMode] takes it without options.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}
