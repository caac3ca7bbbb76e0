package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

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

// planner takes the steps with the oracle's notion of what must be.
type planner struct {
	names
	*Transcript
	plan     *oracle.Plan
	launches map[string]*step
	ops      map[string]int16
	home     map[uint8]uint8 // by block, the stream of its allocation
	retired  oracle.Set
	// backlog are the blocks of a capturing stream that were freed.
	backlog     []uint8
	capturing   map[uint8]bool
	givenUp     map[uint8]bool
	deviceOrder bool
	completed   []int32
	refusing    bool
}

// backstop is the stream for the blocks of those that were given up.
const backstop = uint8(len(streams))

// plan is what each line must lead to.
func (t *Transcript) plan() ([]outcome, error) {
	p := &planner{Transcript: t, plan: oracle.NewPlan(len(streams) + 1), launches: map[string]*step{}, ops: map[string]int16{}, home: map[uint8]uint8{}, capturing: map[uint8]bool{}, givenUp: map[uint8]bool{}}
	p.streams = map[uint8]string{}
	for i := range streams {
		p.streams[uint8(i)] = streams[i : i+1]
	}
	all := make([]outcome, len(t.steps))
	for i, s := range t.steps {
		if s == nil {
			continue
		}
		before := p.plan.Len()
		o, err := p.take(s)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s.text, err)
		}
		o.made = append(p.since(p.plan.History, before), o.made...)
		all[i] = o
	}
	return all, nil
}

func (p *planner) take(s *step) (o outcome, err error) {
	if p.capturing[s.stream] && (s.verb == "alloc" || s.verb == "launch" || s.verb == "prepare") {
		return outcome{made: []effect{said("refused: %s is capturing", streamName(s.stream))}}, nil
	}
	switch s.verb {
	case "alloc":
		p.home[s.block] = s.stream
		p.plan.Alloc(oracle.Node{Stream: s.stream, Op: p.operation("alloc " + blockName(s.block)), Block: s.block, Cells: 1 << s.block})
	case "launch":
		if o = p.prepare(s); len(o.made) == 0 {
			err = p.finish(s.launch, &o)
		}
	case "prepare":
		o = p.prepare(s)
	case "finish":
		err = p.finish(s.launch, &o)
	case "abort":
		p.plan.Abort(p.ops[s.launch])
		p.unblock(&o, p.launches[s.launch])
	case "use":
		n := oracle.Node{Stream: s.stream, Op: p.operation("the use of " + blockName(s.block)), Reads: 1 << s.block, Writes: 1 << s.block}
		p.plan.Use(n)
		p.plan.End(n.Op)
	case "free":
		p.free(s.block, &o)
	case "synchronize":
		p.plan.Decide(s.stream)
		p.learn(p.plan.History.Last(s.stream))
	case "complete":
		p.completed = append(p.completed, p.plan.History.Last(s.stream))
	case "reap":
		p.reap(&o)
	case "capture", "end capture":
		p.capturing[s.stream] = s.verb == "capture"
	case "give up":
		p.plan.Last(oracle.Node{Stream: s.stream, Op: p.operation("the end of " + streamName(s.stream))})
		p.givenUp[s.stream] = true
	case "copy":
		p.copy(s, &o)
	case "refuse":
		p.refusing = true
	case "device order":
		p.deviceOrder = true
	}
	return o, err
}

func (p *planner) learn(node int32) {
	if !p.deviceOrder {
		p.plan.Learn(node)
	}
}

func (p *planner) prepare(s *step) (o outcome) {
	n := oracle.Node{Stream: s.stream, Op: p.operation("launch " + s.launch), Reads: s.reads, Writes: s.writes, Aborted: p.has("abort", s.launch)}
	p.launches[s.launch], p.ops[s.launch] = s, n.Op
	if holder := p.plan.Conflict(n); holder >= 0 {
		o.made = append(o.made, said("refused: %s is open", p.operations[holder]))
		return o
	}
	o.notes = p.reasons(p.plan.Prepare(n))
	return o
}

// finish ends a launch. If the record behind it is refused the host waits for its
// stream instead.
func (p *planner) finish(launch string, o *outcome) error {
	s := p.launches[launch]
	if s == nil {
		return fmt.Errorf("launch %s was not prepared", launch)
	}
	op := p.ops[launch]
	p.plan.Add(oracle.Node{Kind: oracle.Work, Stream: s.stream, Op: op, Reads: s.reads, Writes: s.writes})
	p.plan.End(op)
	if p.refusing {
		p.refusing = false
		o.made = append(o.made, said("the host waits for %s", streamName(s.stream)))
		p.learn(p.plan.History.Last(s.stream))
	}
	p.unblock(o, s)
	return nil
}

// copy is a launch at either end, the older block's first, and two waits between them
// whatever they are behind: neither device knows the order of the other.
func (p *planner) copy(s *step, o *outcome) {
	op := p.operation("the copy to " + blockName(s.block))
	ends := []oracle.Node{{Stream: s.from, Op: op, Reads: 1 << s.source}, {Stream: s.stream, Op: op, Writes: 1 << s.block}}
	if p.plan.Allocated(s.block) < p.plan.Allocated(s.source) {
		slices.Reverse(ends)
	}
	for _, n := range ends {
		o.notes = append(o.notes, p.reasons(p.plan.Fence(n))...)
	}
	p.plan.Meet(s.stream, s.from, op)
	p.plan.Add(oracle.Node{Kind: oracle.Work, Stream: s.stream, Op: op, Writes: 1 << s.block})
	p.plan.Meet(s.from, s.stream, op)
	for _, n := range ends {
		p.plan.Fenced(n)
	}
}

// unblock frees the blocks whose free only the end of a launch was missing for.
func (p *planner) unblock(o *outcome, s *step) {
	for b := range uint8(oracle.MaxBlocks) {
		if s.uses()>>b&1 != 0 && p.retired>>b&1 != 0 && len(p.plan.Users(b)) == 0 {
			p.retired &^= 1 << b
			p.free(b, o)
		}
	}
}

func (p *planner) free(block uint8, o *outcome) {
	stream := p.home[block]
	if users := p.plan.Users(block); len(users) > 0 {
		p.retired |= 1 << block
		for _, op := range users {
			o.notes = append(o.notes, fmt.Sprintf("%s is retired until %s ends", blockName(block), p.operations[op]))
		}
		return
	}
	if p.capturing[stream] {
		p.backlog = append(p.backlog, block)
		o.notes = append(o.notes, fmt.Sprintf("%s is retired until %s captures no more", blockName(block), streamName(stream)))
		return
	}
	if p.givenUp[stream] {
		stream = backstop
	}
	o.notes = append(o.notes, p.reasons(p.plan.Free(oracle.Node{Stream: stream, Op: p.operation("free " + blockName(block)), Block: block, Cells: 1 << block}))...)
}

// reap has the host see what the device has completed, and does what a capture was in
// the way of.
func (p *planner) reap(o *outcome) {
	again := p.backlog
	p.backlog = nil
	for _, b := range again {
		p.free(b, o)
	}
	for _, node := range p.completed {
		p.learn(node)
	}
	p.completed = nil
}

// reasons say why there is no wait for what must come first and is in order without.
func (p *planner) reasons(needs []oracle.Need) (lines []string) {
	var whys []string
	of := map[string][]string{}
	for _, d := range needs {
		if d.By == oracle.ByWait {
			continue
		}
		why := map[oracle.Means]string{oracle.ByStream: "the same stream", oracle.ByOrder: "earlier waits order it", oracle.ByHost: "the host knows that it is completed"}[d.By]
		if d.By == oracle.ByOther {
			why = fmt.Sprintf("the wait for %s brings it", p.stream(p.plan.Nodes()[d.From].Stream))
		}
		if of[why] == nil {
			whys = append(whys, why)
		}
		of[why] = append(of[why], p.operations[p.plan.Nodes()[d.First].Op])
	}
	for _, why := range whys {
		lines = append(lines, fmt.Sprintf("no wait for %s: %s", strings.Join(of[why], ", "), why))
	}
	return lines
}
