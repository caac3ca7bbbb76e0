// Package transcript has short programs with the waits that they make, as text that
// a person can read: testdata/*.txt, a file for each rule of the fences. A change of
// what the fences do shows as a difference of those files.
//
// A line of a transcript is one step of a host goroutine. The indented lines below
// are what it leads to: waits, frees and refusals, and for what else must come
// before it why no wait is needed. A [proof.Planner] writes them (by an oracle.Plan,
// which knows the demands and no clock); the production code, in a [proof.Runner], must make the same
// waits, for the same points of the streams. Below the last step is what it made in
// whole. The steps are
//
//	alloc a on X
//	launch 1 on Y reads a writes b   prepared, enqueued and finished
//	prepare 1 on Y reads a           and no more: finish 1, fail 1 or abort 1 ends it
//	fail 1                           finish 1, when the driver refuses to record that
//	free a
//	use a on Y                       recorded afterwards, with RecordUse
//	synchronize X                    the host waits
//	reap                             the host looks
//	complete X                       the device completes what lies there, and the host looks
//	capture X                        until end capture X
//	give up X                        so all streams are adopted
//	copy b on P to a on X            from another device: P and Q are its streams
//	device order                     StreamPoolConfig.DeviceOrder, as the first step
//
// What begins with # is a comment.
package transcript

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// step is one line of a program.
type step struct {
	text, verb string
	// op is the operation that it is of, and phases are those of it that it takes.
	op     uint8
	phases []proof.Phase
	// launch is the name of one, block that of what is allocated, freed or used.
	launch        string
	stream, block uint8
	// source and from are the block and the stream that a copy reads.
	source, from  uint8
	reads, writes program.Set
}

// Transcript is a program, and comments between its steps.
type Transcript struct {
	// lines are the text without what the steps lead to.
	lines []string
	// steps are by line, nil for a comment.
	steps []*step
	// program are the operations, and names what they are called.
	program program.Program
	names   []string
}

// Parse reads a program, with or without what its steps lead to.
func Parse(text string) (*Transcript, error) {
	t := &Transcript{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, indent) || strings.HasPrefix(line, totals) {
			continue
		}
		var s *step
		if line != "" && !strings.HasPrefix(line, "#") {
			var err error
			if s, err = parse(line); err == nil {
				err = t.add(s)
			}
			if err != nil {
				return nil, err
			}
		}
		t.lines, t.steps = append(t.lines, line), append(t.steps, s)
	}
	for len(t.lines) > 0 && t.lines[len(t.lines)-1] == "" {
		t.lines, t.steps = t.lines[:len(t.lines)-1], t.steps[:len(t.steps)-1]
	}
	return t, nil
}

const (
	indent = "    "
	totals = "waits: "
)

// verb is a kind of step.
type verb struct {
	form *regexp.Regexp
	// kind is that of the operation which it begins, and name what that is called.
	kind program.Kind
	name string
}

// parts are the patterns of the words in capitals in a form.
var parts = strings.NewReplacer(
	"BLOCK", "(?P<block>[a-z])", "SOURCE", "(?P<source>[a-z])", "STREAM", "(?P<stream>["+streams+"])", "FROM", "(?P<from>["+streams+"])",
	"LAUNCH", `(?P<launch>\w+)`, " USES", "(?: reads(?P<reads>(?: [a-z])+))?(?: writes(?P<writes>(?: [a-z])+))?",
)

// form is what a step looks like.
func form(text string) *regexp.Regexp { return regexp.MustCompile("^" + parts.Replace(text) + "$") }

var verbs = map[string]verb{
	"alloc":        {form("alloc BLOCK on STREAM"), program.Alloc, "alloc "},
	"free":         {form("free BLOCK"), program.Free, "free "},
	"use":          {form("use BLOCK on STREAM"), program.Record, "the use of "},
	"launch":       {form("launch LAUNCH on STREAM USES"), program.Launch, "launch "},
	"prepare":      {form("prepare LAUNCH on STREAM USES"), program.Launch, "launch "},
	"synchronize":  {form("synchronize STREAM"), program.Sync, ""},
	"complete":     {form("complete STREAM"), program.Reap, ""},
	"reap":         {form("reap"), program.Peek, ""},
	"give up":      {form("give up STREAM"), program.GiveUp, "the end of "},
	"copy":         {form("copy SOURCE on FROM to BLOCK on STREAM"), program.Launch, "the copy to "},
	"finish":       {form: form("finish LAUNCH")},
	"fail":         {form: form("fail LAUNCH")},
	"abort":        {form: form("abort LAUNCH")},
	"capture":      {form: form("capture STREAM")},
	"end capture":  {form: form("end capture STREAM")},
	"device order": {form: form("device order")},
}

// streams are the letters of streams, from peers on those of another device.
const (
	streams = "XYZWPQ"
	peers   = uint8(4)
	// alphabet are the names of blocks.
	alphabet = "abcdefghijklmnopqrstuvwxyz"
)

func blockName(b uint8) string  { return alphabet[b : b+1] }
func streamName(s uint8) string { return streams[s : s+1] }

// parse reads one step.
func parse(line string) (*step, error) {
	for name, v := range verbs {
		m := v.form.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		part := func(name string) string {
			if i := v.form.SubexpIndex(name); i >= 0 {
				return m[i]
			}
			return ""
		}
		blocks := func(name string) (set program.Set) {
			for _, block := range strings.Fields(part(name)) {
				set |= 1 << (block[0] - 'a')
			}
			return set
		}
		s := &step{text: line, verb: name, launch: part("launch"), reads: blocks("reads"), writes: blocks("writes")}
		s.stream, s.from = uint8(strings.Index(streams, part("stream"))), uint8(strings.Index(streams, part("from")))
		s.block, s.source = uint8(strings.Index(alphabet, part("block"))), uint8(strings.Index(alphabet, part("source")))
		return s, nil
	}
	return nil, fmt.Errorf("%q has the form of no step", line)
}

// add makes a step one of an operation: of a new one, unless it ends a launch.
func (t *Transcript) add(s *step) error {
	v := verbs[s.verb]
	switch s.verb {
	case "finish", "fail", "abort":
		begun := len(t.names) - 1
		for begun >= 0 && t.names[begun] != "launch "+s.launch {
			begun--
		}
		if begun < 0 {
			return fmt.Errorf("%q: launch %s was not prepared", s.text, s.launch)
		}
		s.op, s.phases = uint8(begun), []proof.Phase{proof.Enqueue, proof.End}
		s.stream = t.program[s.op].Stream
		switch s.verb {
		case "fail":
			t.program[s.op].Kind = program.Faulty
		case "abort":
			t.program[s.op].Kind, s.phases = program.Abort, s.phases[1:]
		}
		return nil
	case "capture", "end capture", "device order":
		return nil
	case "free":
		for _, o := range t.program {
			if o.Kind == program.Alloc && o.Block == s.block {
				s.stream = o.Stream
			}
		}
	case "give up":
		v.name += streamName(s.stream)
	}
	s.op, s.phases = uint8(len(t.program)), proof.Phases(v.kind)
	if s.verb == "prepare" {
		s.phases = s.phases[:1]
	}
	if strings.HasSuffix(v.name, " ") && s.launch == "" {
		v.name += blockName(s.block)
	}
	t.program = append(t.program, program.Op{Kind: v.kind, Stream: s.stream, Block: s.block, Reads: s.reads, Writes: s.writes})
	t.names = append(t.names, v.name+s.launch)
	return nil
}

// has reports whether there is a step with a verb.
func (t *Transcript) has(verb string) bool {
	return slices.ContainsFunc(t.steps, func(s *step) bool { return s != nil && s.verb == verb })
}
