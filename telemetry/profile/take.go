package profile

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

// taking is held while a profile is taken: lists of all blocks are large, and
// one at a time is enough.
var taking sync.Mutex

// Take returns a profile of sources as they are now, in the form of pprof's
// own library. It makes no device call; it waits for another Take that is
// under way.
func Take(sources ...Source) (*profile.Profile, error) {
	taking.Lock()
	defer taking.Unlock()
	at := time.Now()
	p := build(collect(sources, MaxSamples))
	p.TimeNanos = at.UnixNano()
	for _, s := range sources {
		if held := s.comment(); held != "" {
			p.Comments = append(p.Comments, held)
		}
	}
	if err := p.CheckValid(); err != nil {
		return nil, err
	}
	return p, nil
}

func collect(sources []Source, limit int) *table {
	t := newTable(limit)
	for _, s := range sources {
		s.collect(t)
		if s.Allocations != nil {
			s.Allocations.collect(t, s.Resource.Ordinal())
		}
	}
	return t
}

// The sample types, in the order of [values].
var sampleTypes = [...]profile.ValueType{
	{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
	{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
}

const defaultSampleType = "inuse_space"

// unsampled is the frame of memory whose stack was not kept.
const unsampled = "unsampled"

// builder makes the samples of a table. Each stack has locations of its own until
// the profile is compacted, which joins equal ones.
type builder struct {
	program  *profile.Mapping
	resolved map[*frames][]*profile.Location
	made     uint64 // how many locations, with a function each
}

func build(t *table) *profile.Profile {
	// without a mapping that says that names are known, pprof looks for
	// the binary to find them
	program, err := os.Executable() // as Go's own profiles name it
	if err != nil {
		program = "unknown"
	}
	b := &builder{resolved: map[*frames][]*profile.Location{},
		program: &profile.Mapping{ID: 1, File: text(program), HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}}
	out := &profile.Profile{DefaultSampleType: defaultSampleType, PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"}, Period: 1,
		Mapping: []*profile.Mapping{b.program}}
	for _, t := range sampleTypes { // copies: writing a profile writes to them
		out.SampleType = append(out.SampleType, &t)
	}
	for k, v := range t.samples {
		if v != (values{}) {
			out.Sample = append(out.Sample, &profile.Sample{Location: b.stack(k.stack), Label: k.labels(),
				Value: []int64{int64(v.allocObjects), int64(v.allocBytes), int64(v.inuseObjects), int64(v.inuseBytes)}})
		}
	}
	slices.SortFunc(out.Sample, bySize)
	// stacks that differ in frames that are left out are one now
	return out.Compact()
}

// bySize puts the largest in use first; equals by what was allocated.
func bySize(a, b *profile.Sample) int {
	return cmp.Or(cmp.Compare(b.Value[3], a.Value[3]), cmp.Compare(b.Value[1], a.Value[1]), cmp.Compare(labelText(a), labelText(b)))
}

func (b *builder) stack(f *frames) []*profile.Location {
	if locations := b.resolved[f]; locations != nil {
		return locations
	}
	var locations []*profile.Location
	if f != nil {
		for _, frame := range core.Stack(f.counters()).Frames() { // of the caller of the runtime
			locations = append(locations, b.location(frame.Function, frame.File, frame.Line, frame.PC))
		}
	}
	if len(locations) == 0 {
		locations = []*profile.Location{b.location(unsampled, "", 0, 0)}
	}
	b.resolved[f] = locations
	return locations
}

func (b *builder) location(function, file string, line int, pc uintptr) *profile.Location {
	b.made++
	return &profile.Location{ID: b.made, Mapping: b.program, Address: uint64(pc), Line: []profile.Line{{Line: int64(line),
		Function: &profile.Function{ID: b.made, Name: text(function), SystemName: text(function), Filename: text(file)}}}}
}

// text is s as a protocol buffer takes it. Samples that differ in what is no
// UTF-8 become one when the profile is compacted.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (k key) labels() map[string][]string {
	labels := map[string][]string{"device": {strconv.Itoa(k.device)}}
	if k.tag != "" {
		labels["tag"] = []string{text(string(k.tag))}
	}
	if !k.noStream {
		labels["stream"] = []string{k.stream.String()}
	}
	if k.state != 0 {
		labels["state"] = []string{blocks.StateName(k.state)}
	}
	return labels
}

// MaxSamples bounds the samples of a profile. It is more than a service has
// of call sites that allocate; what keeps it from growing is a program that
// makes its tags from identifiers.
const MaxSamples = 1 << 15

// otherTag is the tag of what is beyond MaxSamples.
const otherTag core.Tag = "other"

// key is what the blocks of one sample have in common. A state of zero means
// everything ever allocated.
type key struct {
	// stack is interned; nil for unsampled.
	stack  *frames
	tag    core.Tag
	device int
	stream core.StreamID
	// noStream is set where the stream is not known.
	noStream bool
	state    core.BlockState
}

// values are those of a sample, in bytes and counts.
type values struct {
	allocObjects, allocBytes, inuseObjects, inuseBytes uint64
}

func (v values) plus(o values) values {
	return values{v.allocObjects + o.allocObjects, v.allocBytes + o.allocBytes, v.inuseObjects + o.inuseObjects, v.inuseBytes + o.inuseBytes}
}

// table sums up values by key while a profile is taken. It belongs to one
// goroutine.
type table struct {
	stacks  stackTable
	samples map[key]values
	limit   int
}

func newTable(limit int) *table {
	return &table{stacks: stackTable{}, samples: map[key]values{}, limit: limit}
}

func (t *table) add(k key, v values) {
	sum, known := t.samples[k]
	if !known && len(t.samples) >= t.limit {
		k = key{tag: otherTag, device: k.device, noStream: true, state: k.state}
		sum = t.samples[k]
	}
	t.samples[k] = sum.plus(v)
}

// maxFrames is the depth to which stacks are told apart; [core.CaptureStack]
// goes no deeper.
const maxFrames = 32

// frames is an interned call stack, innermost first, cut off behind the last
// program counter. Equal stacks are one pointer within a stackTable.
type frames [maxFrames]uintptr

func framesOf(s core.Stack) (f frames) {
	copy(f[:], s)
	return f
}

// stackTable interns stacks.
type stackTable map[frames]*frames

// intern returns nil for a stack that was not kept.
func (t stackTable) intern(s core.Stack) *frames {
	if len(s) == 0 {
		return nil
	}
	f := framesOf(s)
	if t[f] == nil {
		t[f] = &f
	}
	return t[f]
}

func (f *frames) counters() []uintptr {
	if n := slices.Index(f[:], 0); n >= 0 {
		return f[:n]
	}
	return f[:]
}

// Source is one device of a profile.
type Source struct {
	// Resource is the outermost layer of the device's stack, which lists its
	// blocks. Required.
	Resource core.Resource
	// Allocations counts what was ever allocated; nil leaves that out.
	Allocations *Allocations
}

// collect adds what the device holds now to t.
func (s Source) collect(t *table) {
	for b := range blocks.Of(s.Resource) {
		t.add(key{stack: t.stacks.intern(b.AllocStack), tag: b.Block.Tag.OrUntagged(), device: s.Resource.Ordinal(), stream: b.Block.ID.AllocStream, state: b.Block.State},
			values{inuseObjects: 1, inuseBytes: b.Block.Bytes})
	}
}

// comment says what the device's pool holds, of which the samples have what is in blocks.
// It is empty where there is no pool, and while that holds nothing.
func (s Source) comment() string {
	st := s.Resource.Stats()
	if st.Reserved == 0 {
		return ""
	}
	held := fmt.Sprintf("device %d: the pool holds %d bytes, and %d of them are cached: in no block, and so in no sample", s.Resource.Ordinal(), st.Reserved, st.Cached)
	if st.OwnPool.Present {
		held += fmt.Sprintf("; %d of those are fragmented", st.OwnPool.Fragmented)
	}
	return held
}
