// Package transcript has short programs with the waits that they make, as text that
// a person can read: testdata/*.txt, a file for each rule of the fences. A change of
// what the fences do shows as a difference of those files.
//
// A line of a transcript is one step of a host goroutine. The indented lines below
// are what it leads to: waits, frees and refusals, and for what else must come
// before it why no wait is needed. Package oracle writes them (an [oracle.Plan],
// which knows the demands and no clock); the production code must make the same
// waits, for the same points of the streams. Below the last step is what it made in
// whole. The steps are
//
//	alloc a on X
//	launch 1 on Y reads a writes b   prepared, enqueued and finished
//	prepare 1 on Y reads a           and no more: finish 1 or abort 1 ends it
//	free a
//	use a on Y                       recorded afterwards, with RecordUse
//	synchronize X                    the host waits
//	complete X                       the device completes what lies there
//	reap                             the host looks
//	capture X                        until end capture X
//	give up X                        so all streams are adopted
//	copy b on P to a on X            from another device: P and Q are its streams
//	refuse                           the driver refuses the next record
//	device order                     StreamPoolConfig.DeviceOrder, as the first step
//
// What begins with # is a comment.
package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// step is one line of a program.
type step struct {
	text, verb string
	// launch is the name of one, block that of what is allocated, freed or used.
	launch        string
	stream, block uint8
	// source and from are the block and the stream that a copy reads.
	source, from  uint8
	reads, writes oracle.Set
}

// Transcript is a program, and comments between its steps.
type Transcript struct {
	// lines are the text without what the steps lead to.
	lines []string
	// steps are by line, nil for a comment.
	steps []*step
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
			if s, err = parse(line); err != nil {
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

// has reports whether there is a step with a verb, and with the name of a launch if that is
// not empty.
func (t *Transcript) has(verb, launch string) bool {
	return slices.ContainsFunc(t.steps, func(s *step) bool { return s != nil && s.verb == verb && (launch == "" || s.launch == launch) })
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
	form, ok := map[string]string{
		"alloc": "block on stream", "free": "block", "use": "block on stream", "launch": "launch on stream uses", "prepare": "launch on stream uses",
		"finish": "launch", "abort": "launch", "synchronize": "stream", "complete": "stream", "reap": "", "capture": "stream", "end capture": "stream",
		"give up": "stream", "copy": "source on from to block on stream", "refuse": "", "device order": "",
	}[s.verb]
	if !ok {
		return nil, fmt.Errorf("%q: there is no step %q", line, s.verb)
	}
	for _, part := range strings.Fields(form) {
		if part == "uses" {
			err := s.parseUses(words)
			return s, err
		}
		if len(words) == 0 || !s.parseWord(part, words[0]) {
			return nil, fmt.Errorf("%q is not of the form %q", line, s.verb+" "+form)
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

func isBlock(word string) bool   { return len(word) == 1 && word[0] >= 'a' && word[0] <= 'z' }
func blockOf(word string) uint8  { return word[0] - 'a' } // if isBlock
func blockName(b uint8) string   { return string(rune('a' + b)) }
func streamName(s uint8) string  { return streams[s : s+1] }
func (s *step) uses() oracle.Set { return s.reads | s.writes }

// parseUses reads such as "reads a b writes c".
func (s *step) parseUses(words []string) error {
	var into *oracle.Set
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

// Text is the transcript with what its steps lead to, as the oracle has it, and what
// the production code makes in whole. It is an error if that code does anything
// else.
func (t *Transcript) Text() (string, error) {
	return t.text(func(_, _ *device.Device) {})
}

func (t *Transcript) text(look func(here, peer *device.Device)) (string, error) {
	expected, err := t.plan()
	if err != nil {
		return "", err
	}
	made, total, err := t.run(look)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, line := range t.lines {
		fmt.Fprintln(&b, line)
		if want, got := expected[i].made, made[i]; !slices.Equal(want, got) {
			return "", fmt.Errorf("%q leads to\n\t%v\nand the oracle says\n\t%v", line, got, want)
		}
		expected[i].write(&b)
	}
	fmt.Fprintln(&b, total)
	return b.String(), nil
}
