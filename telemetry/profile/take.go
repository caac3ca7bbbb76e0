package profile

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/fencepost-gpu/fencepost/core"
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
	return p, p.CheckValid()
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

// builder makes a profile of a table. Functions and locations are interned.
type builder struct {
	out       *profile.Profile
	functions map[functionKey]*profile.Function
	locations map[locationKey]*profile.Location
	resolved  map[*frames][]*profile.Location
}

type functionKey struct{ name, file string }

type locationKey struct {
	functionKey
	line int
	pc   uintptr
}

func build(t *table) *profile.Profile {
	b := &builder{
		out: &profile.Profile{DefaultSampleType: defaultSampleType, PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"}, Period: 1,
			// without a mapping that says that names are known, pprof looks for
			// the binary to find them
			Mapping: []*profile.Mapping{{ID: 1, File: executable(), HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}}},
		functions: map[functionKey]*profile.Function{}, locations: map[locationKey]*profile.Location{}, resolved: map[*frames][]*profile.Location{},
	}
	for i := range sampleTypes {
		b.out.SampleType = append(b.out.SampleType, &sampleTypes[i])
	}
	for k, v := range t.samples {
		if v != (values{}) {
			b.out.Sample = append(b.out.Sample, &profile.Sample{Location: b.stack(k.stack), Label: k.labels(),
				Value: []int64{int64(v.allocObjects), int64(v.allocBytes), int64(v.inuseObjects), int64(v.inuseBytes)}})
		}
	}
	slices.SortFunc(b.out.Sample, bySize)
	// stacks that differ in frames that are left out are one now
	return b.out.Compact()
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
		for _, frame := range f.resolve() {
			locations = append(locations, b.location(functionKey{frame.Function, frame.File}, frame.Line, frame.PC))
		}
	}
	if len(locations) == 0 {
		locations = []*profile.Location{b.location(functionKey{name: unsampled}, 0, 0)}
	}
	b.resolved[f] = locations
	return locations
}

func (b *builder) location(f functionKey, line int, pc uintptr) *profile.Location {
	k := locationKey{f, line, pc}
	l := b.locations[k]
	if l == nil {
		l = &profile.Location{ID: uint64(len(b.locations) + 1), Mapping: b.out.Mapping[0], Address: uint64(pc),
			Line: []profile.Line{{Function: b.function(f), Line: int64(line)}}}
		b.locations[k] = l
		b.out.Location = append(b.out.Location, l)
	}
	return l
}

func (b *builder) function(k functionKey) *profile.Function {
	f := b.functions[k]
	if f == nil {
		f = &profile.Function{ID: uint64(len(b.functions) + 1), Name: k.name, SystemName: k.name, Filename: k.file}
		b.functions[k] = f
		b.out.Function = append(b.out.Function, f)
	}
	return f
}

func (k key) labels() map[string][]string {
	labels := map[string][]string{"device": {strconv.Itoa(k.device)}}
	if k.tag != "" {
		labels["tag"] = []string{string(k.tag)}
	}
	if !k.noStream {
		labels["stream"] = []string{k.stream.String()}
	}
	if k.state != 0 {
		labels["state"] = []string{stateLabel(k.state)}
	}
	return labels
}

// stateLabel calls retired what metrics and [core.Stats] call pending.
func stateLabel(s core.BlockState) string {
	if s == core.Retired {
		return "pending"
	}
	return s.String()
}

// executable names the program, as Go's own profiles do.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	return path
}
