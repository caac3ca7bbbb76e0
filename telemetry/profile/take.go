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
		if text := s.comment(); text != "" {
			p.Comments = append(p.Comments, text)
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
	b := &builder{resolved: map[*frames][]*profile.Location{},
		program: &profile.Mapping{ID: 1, File: executable(), HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}}
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
		Function: &profile.Function{ID: b.made, Name: function, SystemName: function, Filename: file}}}}
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
		labels["state"] = []string{blocks.StateName(k.state)}
	}
	return labels
}

// executable names the program, as Go's own profiles do.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	return path
}
