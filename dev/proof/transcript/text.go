package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// effect is something that a step leads to.
type effect struct {
	text string
	// stream and place are of the point that a wait is for: the letter, and how many
	// nodes lie before it on that stream.
	stream string
	place  int
}

func said(format string, args ...any) effect { return effect{text: fmt.Sprintf(format, args...)} }

// letters are what the operations and streams of a history are called.
type letters struct {
	operations []string
	streams    map[uint8]string
}

// stream is the letter of a stream. The one without is that on which the runtime
// frees the blocks of streams that were given up.
func (l *letters) stream(s uint8) string {
	if name, ok := l.streams[s]; ok {
		return name
	}
	return "the backstop"
}

// since describes the waits and frees that a history has from a node on. Waits that follow each other
// are in the order of their texts: which is queued first does not matter.
func (l *letters) since(h *oracle.History, from int) (found []effect) {
	nodes := h.Nodes()
	for i := from; i < len(nodes); i++ {
		switch node := &nodes[i]; node.Kind {
		case oracle.Wait:
			e := said("%s waits for nothing", l.stream(node.Stream))
			if node.From >= 0 {
				of := nodes[node.From].Stream
				e = effect{fmt.Sprintf("%s waits for %s, behind %s", l.stream(node.Stream), l.stream(of), l.behind(nodes, node.From)), l.stream(of), place(nodes, node.From)}
			}
			at := len(found)
			for at > 0 && found[at-1].stream != "" && e.text < found[at-1].text {
				at--
			}
			found = slices.Insert(found, at, e)
		case oracle.Free:
			found = append(found, said("%s is freed on %s", blockName(node.Block), l.stream(node.Stream)))
		}
	}
	return found
}

// place is how many nodes lie before one on its stream.
func place(nodes []oracle.Node, at int32) (before int) {
	for i := range nodes[:at] {
		if nodes[i].Stream == nodes[at].Stream {
			before++
		}
	}
	return before
}

// behind names the newest of what lies at or before a point of a stream, or all the
// allocations that lie there in a row.
func (l *letters) behind(nodes []oracle.Node, at int32) string {
	var allocated []string
	freed := map[uint8]bool{}
	for i := at; i >= 0; i-- {
		node := &nodes[i]
		if node.Stream != nodes[at].Stream || node.Aborted {
			continue
		}
		switch node.Kind {
		case oracle.Free:
			freed[node.Block] = true
			continue
		case oracle.Alloc:
			if !freed[node.Block] {
				allocated = append([]string{blockName(node.Block)}, allocated...)
			}
			continue
		}
		if len(allocated) == 0 {
			return l.operations[node.Op]
		}
		break
	}
	return "alloc " + strings.Join(allocated, ", ")
}

// outcome is what a step leads to: what it makes, and why it makes no more.
type outcome struct {
	made  []effect
	notes []string
}

// write writes the waits, then the notes, and then what is left.
func (o *outcome) write(b *strings.Builder) {
	waits := 0
	for waits < len(o.made) && o.made[waits].stream != "" {
		waits++
	}
	for _, e := range o.made[:waits] {
		fmt.Fprintln(b, indent+e.text)
	}
	for _, note := range o.notes {
		fmt.Fprintln(b, indent+note)
	}
	for _, e := range o.made[waits:] {
		fmt.Fprintln(b, indent+e.text)
	}
}

// plan takes the steps with the oracle's notion of what must be.
type plan struct {
	*proof.Planner
	*Transcript
	letters
	// backlog are the frees of a capturing stream.
	backlog   []*step
	capturing map[uint8]bool
}

// plan is what each line must lead to.
func (t *Transcript) plan() []outcome {
	p := &plan{Planner: proof.NewPlanner(len(streams) + 1), Transcript: t, letters: letters{operations: t.names, streams: map[uint8]string{}}, capturing: map[uint8]bool{}}
	p.DeviceOrder, p.Backstop = t.has("device order"), uint8(len(streams))
	for i := range streams {
		p.streams[uint8(i)] = streams[i : i+1]
	}
	all := make([]outcome, len(t.steps))
	for i, s := range t.steps {
		if s != nil {
			before := p.Len()
			p.take(s, &all[i])
			all[i].made = append(p.since(p.History, before), all[i].made...)
		}
	}
	return all
}

func (p *plan) take(s *step, o *outcome) {
	switch s.verb {
	case "capture", "end capture":
		p.capturing[s.stream] = s.verb == "capture"
		return
	case "alloc", "launch", "prepare":
		if p.capturing[s.stream] {
			o.made = append(o.made, said("refused: %s is capturing", streamName(s.stream)))
			return
		}
	case "free":
		if p.capturing[s.stream] {
			p.backlog = append(p.backlog, s)
			o.notes = append(o.notes, fmt.Sprintf("%s is retired until %s captures no more", blockName(s.block), streamName(s.stream)))
			return
		}
	case "reap":
		for _, free := range p.backlog {
			p.take(free, o)
		}
		p.backlog = nil
	case "fail":
		o.notes = append(o.notes, fmt.Sprintf("the host waits for %s", streamName(s.stream)))
	case "copy":
		p.copy(s, o)
		return
	}
	for _, phase := range s.phases {
		must := p.Take(p.program[s.op], proof.Step{Op: s.op, Phase: phase})
		if must.Holder >= 0 {
			o.made = append(o.made, said("refused: %s is open", p.names[must.Holder]))
			return
		}
		for _, op := range must.Users {
			o.notes = append(o.notes, fmt.Sprintf("%s is retired until %s ends", blockName(s.block), p.names[op]))
		}
		for _, op := range must.Held {
			o.notes = append(o.notes, fmt.Sprintf("the free is held until %s is seen completed", p.names[op]))
		}
		o.notes = append(o.notes, p.reasons(must.Needs)...)
	}
}

// copy is a launch at either end, the older block's first, and two waits between them
// whatever they are behind: neither device knows the order of the other.
func (p *plan) copy(s *step, o *outcome) {
	op := int16(s.op)
	ends := []oracle.Node{{Stream: s.from, Op: op, Reads: 1 << s.source}, {Stream: s.stream, Op: op, Writes: 1 << s.block}}
	if p.Allocated(s.block) < p.Allocated(s.source) {
		slices.Reverse(ends)
	}
	for _, n := range ends {
		o.notes = append(o.notes, p.reasons(p.Fence(n))...)
	}
	p.Meet(s.stream, s.from, op)
	p.Add(oracle.Node{Kind: oracle.Work, Stream: s.stream, Op: op, Writes: 1 << s.block})
	p.Meet(s.from, s.stream, op)
	for _, n := range ends {
		p.Fenced(n)
	}
}

// reasons say why there is no wait for what must come first and is in order without.
func (p *plan) reasons(needs []oracle.Need) (lines []string) {
	var whys []string
	of := map[string][]string{}
	for _, d := range needs {
		if d.By == oracle.ByWait {
			continue
		}
		why := map[oracle.Means]string{oracle.ByStream: "the same stream", oracle.ByOrder: "earlier waits order it", oracle.ByHost: "the host knows that it is completed"}[d.By]
		if d.By == oracle.ByOther {
			why = fmt.Sprintf("the wait for %s brings it", p.stream(p.Nodes()[d.From].Stream))
		}
		if of[why] == nil {
			whys = append(whys, why)
		}
		of[why] = append(of[why], p.names[p.Nodes()[d.First].Op])
	}
	for _, why := range whys {
		lines = append(lines, fmt.Sprintf("no wait for %s: %s", strings.Join(of[why], ", "), why))
	}
	return lines
}

// Text is the transcript with what its steps lead to, as the oracle has it, and what
// the production code makes in whole. It is an error if that code does anything
// else.
func (t *Transcript) Text() (string, error) {
	return t.text(func(_, _ *device.Device) {})
}

func (t *Transcript) text(look func(here, peer *device.Device)) (string, error) {
	expected := t.plan()
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
