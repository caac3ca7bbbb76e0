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

// verbs are the form of each step, the kind of the operation that it begins, and what that is called.
var verbs = map[string]struct {
	form string
	kind program.Kind
	name string
}{
	"alloc":        {"block on stream", program.Alloc, "alloc "},
	"free":         {"block", program.Free, "free "},
	"use":          {"block on stream", program.Record, "the use of "},
	"launch":       {"launch on stream uses", program.Launch, "launch "},
	"prepare":      {"launch on stream uses", program.Launch, "launch "},
	"synchronize":  {"stream", program.Sync, ""},
	"complete":     {"stream", program.Reap, ""},
	"reap":         {"", program.Peek, ""},
	"give up":      {"stream", program.GiveUp, "the end of "},
	"copy":         {"source on from to block on stream", program.Launch, "the copy to "},
	"finish":       {form: "launch"},
	"fail":         {form: "launch"},
	"abort":        {form: "launch"},
	"capture":      {form: "stream"},
	"end capture":  {form: "stream"},
	"device order": {},
}

// add makes a step one of an operation: of a new one, unless it ends a launch.
func (t *Transcript) add(s *step) error {
	v := verbs[s.verb]
	switch s.verb {
	case "finish", "fail", "abort":
		begun := slices.Index(t.names, "launch "+s.launch)
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

// streams are the letters of streams, from peers on those of another device.
const (
	streams = "XYZWPQ"
	peers   = uint8(4)
)

// parse reads one step: words, of which the first is the verb.
func parse(line string) (*step, error) {
	s := &step{text: line}
	words := strings.Fields(line)
	s.verb, words = words[0], words[1:]
	if s.verb == "give" || s.verb == "end" || s.verb == "device" {
		s.verb, words = s.verb+" "+strings.Join(words[:min(1, len(words))], ""), words[min(1, len(words)):]
	}
	v, ok := verbs[s.verb]
	if !ok {
		return nil, fmt.Errorf("%q: there is no step %q", line, s.verb)
	}
	for _, part := range strings.Fields(v.form) {
		if part == "uses" {
			err := s.parseUses(words)
			return s, err
		}
		if len(words) == 0 || !s.parseWord(part, words[0]) {
			return nil, fmt.Errorf("%q is not of the form %q", line, s.verb+" "+v.form)
		}
		words = words[1:]
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("%q has words too many: %q", line, words)
	}
	return s, nil
}

func (s *step) parseWord(part, word string) bool {
	switch part {
	case "launch":
		s.launch = word
		return true
	case "stream", "from":
		at := strings.Index(streams, word)
		into := map[string]*uint8{"stream": &s.stream, "from": &s.from}[part]
		*into = uint8(max(at, 0))
		return at >= 0 && len(word) == 1
	case "block", "source":
		into := map[string]*uint8{"block": &s.block, "source": &s.source}[part]
		*into = blockOf(word)
		return isBlock(word)
	}
	return word == part
}

func isBlock(word string) bool  { return len(word) == 1 && word[0] >= 'a' && word[0] <= 'z' }
func blockOf(word string) uint8 { return word[0] - 'a' } // if isBlock
func blockName(b uint8) string  { return string(rune('a' + b)) }
func streamName(s uint8) string { return streams[s : s+1] }

// parseUses reads such as "reads a b writes c".
func (s *step) parseUses(words []string) error {
	var into *program.Set
	for _, word := range words {
		switch {
		case word == "reads":
			into = &s.reads
		case word == "writes":
			into = &s.writes
		case into == nil || !isBlock(word):
			return fmt.Errorf("%q: %q where reads, writes or a block belongs", s.text, word)
		default:
			*into |= 1 << blockOf(word)
		}
	}
	return nil
}
