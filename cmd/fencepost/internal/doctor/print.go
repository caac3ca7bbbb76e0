package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// Print writes the report for people.
func (r *Report) Print(out io.Writer) {
	p := printer{out}
	p.title("Fencepost %s", r.Build.Version)
	p.line("revision", "%s", r.Build.Revision)
	p.line("built with", "%s for %s%s", r.Build.Go, r.Build.Platform, prefixed(", cgo ", r.Build.Cgo))
	r.printDriver(p)
	for _, d := range r.Devices {
		d.print(p)
	}
	r.Host.print(p)
	if len(r.Settings) > 0 {
		p.title("\nVariables that are set")
		for _, s := range r.Settings {
			terminal.Fprintf(out, "  %s=%s\n", s.Name, s.Value)
			p.line("", "%s", s.Meaning)
		}
	}
	r.printSelfTest(p)
	r.printProblems(p)
	p.title("\n%s", r.verdict())
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func (r *Report) printDriver(p printer) {
	d := r.Driver
	p.title("\nCUDA driver")
	p.line("library", "%s", cmp.Or(d.Library, "none"))
	if d.File != d.Library {
		p.line("file", "%s", d.File)
	}
	if d.APIVersion > 0 {
		p.line("API version", "%s, at least %s is needed", versionText(d.APIVersion), neededVersion())
	}
	p.line("kernel module", "%s", cmp.Or(d.KernelVersion, "not seen"))
	if d.APIVersion > 0 {
		p.line("missing calls", "%s", cmp.Or(strings.Join(d.Missing, ", "), "none"))
	}
	p.line("error", "%s", d.Error)
}

func (d Device) print(p printer) {
	p.title("\nDevice cuda:%d  %s", d.Ordinal, d.Name)
	if d.Error != "" {
		p.line("error", "%s", d.Error)
		return
	}
	p.line("UUID", "%s", d.UUID)
	p.line("PCI", "%s", d.PCIBusID)
	p.line("capability", "%s, %d multiprocessors, built-in kernels %s", d.Capability, d.Multiprocessors, yes(d.Kernels))
	p.line("memory", "%s%s", size.Of(d.TotalBytes), d.freeText())
	p.line("memory pools", "%s", yes(d.MemoryPools))
	p.line("virtual memory", "%s", yes(d.VirtualMemory))
	p.line("modes", "compute %s, ECC %s%s", d.ComputeMode, map[bool]string{true: "on", false: "off"}[d.ECC], prefixed(", MIG ", d.MIG))
}

func (d Device) freeText() string {
	if d.FreeBytes == 0 {
		return ""
	}
	text := fmt.Sprintf(", %s free", size.Of(d.FreeBytes))
	if d.Processes < 0 { // not known, which is not none
		return text
	}
	return fmt.Sprintf("%s, %d processes", text, d.Processes)
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func (h Host) print(p printer) {
	p.title("\nHost")
	var nodes []string
	for _, n := range h.Nodes {
		nodes = append(nodes, n.Path+prefixed(": ", n.Error))
	}
	p.line("device files", "%s", cmp.Or(strings.Join(nodes, ", "), "none"))
	p.line("container", "%s", h.Container)
	if h.WSL {
		p.line("WSL", "yes")
	}
	p.line("MPS", "%s", h.MPS)
	p.line("memory limit", "%s", limit(h.MemoryMax))
	p.line("locked memory", "%s", limit(h.LockedMax))
}

func limit(bytes uint64) string {
	if bytes == 0 {
		return "no limit"
	}
	return "at most " + size.Of(bytes)
}

func (r *Report) printSelfTest(p printer) {
	t := r.SelfTest
	p.title("\nSelf-test")
	if t.Device != nil {
		p.line("device", "%s", t.Device)
		p.line("stack", "%s", t.Stack)
		p.line("budget", "%s", size.Of(t.Budget))
	}
	for _, l := range t.Limits {
		of := size.Figures(l.Bytes, l.Used, l.Allowed)
		p.line("limit by "+l.Source, "%s in %s, %s used, so the runtime may hold %s", of(l.Bytes), l.Name,
			of(l.Used), of(l.Allowed))
	}
	if t.Pool != nil {
		p.line("pool", "%s", t.Pool)
	}
	if t.KernelLog != "off" {
		p.line("kernel log", "%s", t.KernelLog)
	}
	switch {
	case t.OK:
		p.line("result", "ok in %.0f ms: allocated, filled, copied back, compared, freed%s", t.Milliseconds,
			map[bool]string{true: ", red zones verified"}[t.RedZones])
	case r.noDriver():
		p.line("result", "failed: no GPU could be opened")
	default:
		p.line("result", "failed at %q: %s", t.Step, t.Error)
	}
}

// String is the pool in a line.
func (p *Pool) String() string {
	text := fmt.Sprintf("%s held, %s of it cached", size.Of(p.Reserved), size.Of(p.Cached))
	if !p.Own {
		return "the driver's, " + text
	}
	return fmt.Sprintf("our own, %s, %s fragmented, %s", text, size.Of(p.Fragmented), limit(p.Limit))
}

func (r *Report) printProblems(p printer) {
	for i, problem := range r.Problems {
		if i == 0 {
			p.title("\nWhat to know, and what to do")
		}
		p.line(problem.Severity, "%s", problem.Text)
		p.line("", "-> %s", problem.Fix)
	}
}

// verdict is the last line.
func (r *Report) verdict() string {
	switch {
	case r.OK && r.SelfTest.Device.Kind == fencepost.Sim:
		return "Fencepost runs here, on the simulated device."
	case r.OK:
		return fmt.Sprintf("Fencepost runs here, on %s.", r.SelfTest.Device)
	}
	return "Fencepost does NOT run here as asked."
}

// Layout of the text: a label, then the value from labelWidth on, wrapped at
// pageWidth.
const (
	labelWidth = 18
	pageWidth  = 80
)

// printer writes lines of a label and a value.
type printer struct{ out io.Writer }

func (p printer) title(format string, args ...any) { terminal.Fprintf(p.out, format+"\n", args...) }

// line writes a value beside its label, on as many lines as it takes. Nothing
// is written for an empty value. Line ends are spaces to it, and what else does
// not print is escaped.
func (p printer) line(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, row := range wrap(text, pageWidth-labelWidth) {
		terminal.Fprintf(p.out, "%-*s%s\n", labelWidth, cut("  "+label), row)
		label = ""
	}
}

// cut keeps a label from running into its value.
func cut(label string) string {
	if len(label) < labelWidth {
		return label
	}
	return label[:labelWidth-1]
}

// wrap breaks text at spaces. A word longer than the width keeps a line of its
// own, unbroken, so that it can be copied.
func wrap(text string, width int) []string {
	var rows []string
	row := ""
	for _, word := range strings.Fields(text) {
		if row != "" && len(row)+1+len(word) > width {
			rows = append(rows, row)
			row = ""
		}
		if row != "" {
			row += " "
		}
		row += word
	}
	if row != "" {
		rows = append(rows, row)
	}
	return rows
}
