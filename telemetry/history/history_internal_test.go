package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// program makes a random history of a device that reuses addresses eagerly:
// blocks are allocated, freed and released, and memory that is pending may be
// passed on before its release is known. It returns the events and what is
// held at their end.
func program(random *rand.Rand, n int, releases bool) (events []oplog.Event, left map[core.Generation]core.BlockState) {
	const cells, cell = 12, 4096
	type block struct {
		core.BlockID
		bytes uint64
	}
	left = map[core.Generation]core.BlockState{}
	blocks := map[core.Generation]block{}
	owner := [cells]core.Generation{} // the last one, if it is not released
	clock, last := time.Unix(1_700_000_000, 0), core.Generation(0)
	emit := func(op oplog.Op, b block) {
		clock = clock.Add(time.Duration(1 + random.IntN(5000)))
		events = append(events, oplog.Event{Op: op, Layer: "logging", Time: clock, Stream: b.AllocStream, Block: b.BlockID, Tag: "tag", Requested: b.bytes - 1, Bytes: b.bytes})
	}
	pick := func(state core.BlockState) (core.Generation, bool) {
		var all []core.Generation
		for g, s := range left {
			if s == state {
				all = append(all, g)
			}
		}
		if len(all) == 0 {
			return 0, false
		}
		slices.Sort(all)
		return all[random.IntN(len(all))], true
	}
	for range n {
		switch random.IntN(3) {
		case 0:
			from, size := random.IntN(cells), 1+random.IntN(3)
			if from+size > cells || slices.ContainsFunc(owner[from:from+size], func(g core.Generation) bool { return left[g] == core.Live }) {
				continue
			}
			last++
			b := block{core.BlockID{Ptr: uint64(1<<30 + from*cell), Generation: last, AllocStream: core.StreamID(random.IntN(3))}, uint64(size * cell)}
			for i := range size {
				owner[from+i] = last
			}
			blocks[last], left[last] = b, core.Live
			emit(oplog.OpAllocate, b)
		case 1:
			if g, ok := pick(core.Live); ok {
				if left[g] = core.Retired; !releases {
					delete(left, g)
				}
				emit(oplog.OpDeallocate, blocks[g])
			}
		case 2:
			if g, ok := pick(core.Retired); ok {
				delete(left, g)
				emit(oplog.OpRelease, blocks[g])
			}
		}
	}
	return events, left
}

// follower checks that the steps of a replay fit together.
type follower struct {
	t     *testing.T
	what  string
	state map[core.Generation]step
	at    extents
	steps map[step]int
}

func follow(t *testing.T, what string, h *loaded) (*follower, *replay) {
	t.Helper()
	f := &follower{t: t, what: what, state: map[core.Generation]step{}, steps: map[step]int{}}
	r := h.replay(h.books[0], f.step)
	for _, b := range r.left() {
		if want := map[bool]step{false: stepAllocate, true: stepFree}[b.freed]; f.state[b.id.Generation] != want {
			t.Fatalf("%s: block %v is left as %v", what, b.id, f.state[b.id.Generation])
		}
	}
	return f, r
}

func (f *follower) step(s step, b *memory, _ int64, _ *oplog.Event) {
	f.t.Helper()
	f.steps[s]++
	g := b.id.Generation
	if s == stepRefuse {
		return
	}
	again := s == stepAllocate && f.state[g] == stepRelease // two records of one allocation
	if want := map[step]step{stepAllocate: 0, stepFree: stepAllocate, stepRelease: stepFree}[s]; f.state[g] != want && !again {
		f.t.Fatalf("%s: step %d of block %v after step %d", f.what, s, b.id, f.state[g])
	}
	f.state[g] = s
	switch s {
	case stepAllocate:
		if len(f.at.over(b)) > 0 {
			f.t.Fatalf("%s: block %v is allocated over another", f.what, b.id)
		}
		f.at.insert(b)
	case stepRelease:
		f.at.remove(b)
	}
}

// snapshots are files for one run of Python, which checks them all.
type snapshots []string

func (s *snapshots) write(t *testing.T, name string, h *loaded) {
	t.Helper()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), name+".pickle")))(t)
	must.Do(t, h.writeSnapshot(file))
	must.Do(t, file.Close())
	*s = append(*s, file.Name())
}

func (s *snapshots) check(t *testing.T) {
	t.Helper()
	python(t, nil, append([]string{"testdata/check_snapshot.py"}, *s...)...)
}

func load(t *testing.T, events []oplog.Event, listed map[core.Generation]listedBlock) *loaded {
	t.Helper()
	h := &loaded{events: events, listed: listed}
	h.findOrigin()
	must.Do(t, h.keepBooks())
	if len(h.books) == 0 {
		h.books = []*book{newBook(0)}
	}
	return h
}

func TestAWholeHistoryEndsWithWhatIsHeld(t *testing.T) {
	for seed := range uint64(300) {
		releases := seed%2 == 0
		events, want := program(rand.New(rand.NewPCG(seed, 1)), 200, releases)
		f, r := follow(t, fmt.Sprint("seed ", seed), load(t, events, nil))
		got := map[core.Generation]core.BlockState{}
		for _, b := range r.left() {
			got[b.id.Generation] = core.Live
			if b.freed {
				got[b.id.Generation] = core.Retired
			}
		}
		// memory that was passed on in stream order is no longer the older block's
		maps.DeleteFunc(want, func(g core.Generation, s core.BlockState) bool { return s == core.Retired && f.state[g] == stepRelease })
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: left %v, want %v", seed, got, want)
		}
	}
}

// Whatever records are lost, the rest makes sense; and what the resources list
// is held at the end.
func TestAHistoryWithoutItsBeginningStillFitsTogether(t *testing.T) {
	var files snapshots
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 2))
		events, left := program(random, 200, seed%2 == 0)
		listed := map[core.Generation]listedBlock{}
		for _, e := range events {
			if state, ok := left[e.Block.Generation]; ok && seed%3 > 0 {
				listed[e.Block.Generation] = listedBlock{memory: memoryOfEvent(&e), state: state}
			}
		}
		switch cut := random.IntN(200); seed % 4 {
		case 0, 1:
			events = events[min(cut, len(events)):]
		default: // a ring of stripes forgets each stream's by itself
			old := 0
			events = slices.DeleteFunc(events, func(e oplog.Event) bool {
				old++
				return old < cut*int(1+e.Stream)/3
			})
		}
		h := load(t, events, listed)
		_, r := follow(t, fmt.Sprint("seed ", seed), h)
		files.write(t, fmt.Sprint("seed ", seed), h)
		if seed%3 == 0 {
			continue
		}
		for g, state := range left {
			if state == core.Live && r.blocks[g] == nil {
				t.Fatalf("seed %d: block %v is live and not among what is left", seed, g)
			}
		}
	}
	files.check(t)
}

func TestLostAndRefusedRequestsAreToldFromOthers(t *testing.T) {
	lost := oplog.Event{Op: oplog.OpAllocate, Err: fmt.Errorf("driver: %w", core.ErrOutOfMemory), Bytes: 7}
	refused := oplog.Event{Op: oplog.OpRefusal, Err: &core.OutOfBudgetError{Remaining: 3}, Bytes: 9}
	relieved := refused
	relieved.Relieved = true
	other := oplog.Event{Op: oplog.OpAllocate, Err: errors.New("stream misuse")}
	f, _ := follow(t, "refusals", load(t, []oplog.Event{lost, refused, relieved, other}, nil))
	if f.steps[stepRefuse] != 2 || len(f.steps) != 1 {
		t.Errorf("steps %v, want two refusals", f.steps)
	}
	if remaining(refused.Err) != 3 || remaining(lost.Err) != 0 {
		t.Error("the rest of the budget")
	}
}

func TestAddressesThatNoDeviceHasAreRefused(t *testing.T) {
	for _, e := range []oplog.Event{
		{Op: oplog.OpAllocate, Block: core.BlockID{Generation: 1, Ptr: 1 << 63}},
		{Op: oplog.OpDeallocate, Block: core.BlockID{Generation: 1}, Bytes: 1 << 63},
		{Op: oplog.OpReap, Ordinal: core.MaxOrdinals},
	} {
		s := Source{Events: func() []oplog.Event { return []oplog.Event{e} }}
		for _, f := range []Format{Perfetto, PyTorch} {
			if err := s.Write(nil, f); err == nil {
				t.Errorf("%v was written as %s", e, f)
			}
		}
	}
}

// endless is a history that has no end as long as somebody takes it.
func endless(began chan<- struct{}) Source {
	return Source{Events: func() []oplog.Event { return nil }, JSONLines: func(w io.Writer) error {
		began <- struct{}{}
		for line := make([]byte, 64<<10); ; {
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}}
}

// A client that does not read holds up nobody for long.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	began := make(chan struct{}, 8)
	source, turn := endless(began), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { source.serve(w, r, turn, 50*time.Millisecond) }))
	defer server.Close()
	for range 2 { // the second is answered when the first is cut off
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		must.Get(io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"))(t)
		select {
		case <-began:
		case <-time.After(time.Minute):
			t.Fatal("a request is memory up")
		}
	}
}

func TestAClientThatWaitsForItsTurnMayLeave(t *testing.T) {
	turn := make(chan struct{}, 1)
	turn <- struct{}{} // somebody is answered
	ctx, leave := context.WithCancel(t.Context())
	leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		endless(nil).serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), turn, patience)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
}

// python runs a script of Python's with a file on its standard input.
func python(t *testing.T, input []byte, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, out)
	}
	return string(out)
}

func TestPythonReadsWhatThePicklerWrites(t *testing.T) {
	var file bytes.Buffer
	p := newPickler(&file)
	p.write(dict{
		{"numbers", list(func(add func(any)) {
			for _, n := range []int64{0, 1, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, -1, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64} {
				add(n)
			}
			for _, n := range []uint64{7, 1 << 47, math.MaxInt64, 1 << 63, math.MaxUint64} {
				add(n)
			}
		})},
		{"texts", list(func(add func(any)) {
			for _, s := range []text{"", "é ü \u20ac", "quote \" and \\", "bad \xff byte", text(strings.Repeat("x", 300))} {
				add(s)
			}
			for i := range 600 { // more than a short number of the memo
				add(word(rune('a' + i%300)))
			}
		})},
		{"pair", pair{0, 1000}},
		{"yes", true},
		{"no", false},
		{"empty", dict{}},
		{"shared", list(func(add func(any)) {
			for range 2 {
				add(shared{"list", func() any { return list(func(add func(any)) { add(int64(5)) }) }})
			}
		})},
	})
	must.Do(t, p.end())
	python(t, file.Bytes(), "-c", `
import pickle, sys
v = pickle.loads(sys.stdin.buffer.read())
assert v["numbers"] == [0, 1, 255, 256, 65535, 65536, 2**31-1, 2**31, -1, -2**31, -2**31-1, 2**63-1, -2**63, 7, 2**47, 2**63-1, 2**63, 2**64-1], v["numbers"]
assert v["texts"][:5] == ["", "é ü €", "quote \" and \\", "bad \ufffd byte", "x" * 300], v["texts"][:5]
assert v["texts"][5:] == [chr(ord("a") + i % 300) for i in range(600)]
assert (v["pair"], v["yes"], v["no"], v["empty"], v["shared"]) == ((0, 1000), True, False, {}, [[5], [5]])
assert list(v) == ["numbers", "texts", "pair", "yes", "no", "empty", "shared"]
`)
}

func TestAValueWithoutAFormIsAnError(t *testing.T) {
	for _, inside := range []any{"a string", int32(5), nil, 1.5} {
		var file bytes.Buffer
		p := newPickler(&file)
		p.write(dict{{"number", 1}, {"strange", inside}, {"list", list(func(add func(any)) { add(inside) })}})
		if err := p.end(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T", inside)) {
			t.Errorf("%T: got %v, want an error that names the type", inside, err)
		}
	}
}

// A want of memory of the pool or the device is one refusal, though the log has the allocation that
// failed and what the caller was told.
func TestAWantOfMemoryIsOneRefusal(t *testing.T) {
	short := &core.OutOfMemoryError{Requested: 9}
	refusals := 0
	for _, e := range []oplog.Event{
		{Op: oplog.OpAllocate, Err: short}, {Op: oplog.OpRefusal, Err: short}, {Op: oplog.OpRefusal, Err: short,
			Relieved: true},
	} {
		if isRefusal(&e) {
			refusals++
		}
	}
	if refusals != 1 {
		t.Errorf("%d refusals", refusals)
	}
}

// A history may lose the release of a block whose free it has. What the resources do not list is
// released, unless it was freed since they were asked, or they were not asked.
func TestAFreedBlockThatIsNotListedIsReleased(t *testing.T) {
	begin := time.Unix(1, 0)
	var events []oplog.Event
	for g := range core.Generation(3) {
		id := core.BlockID{Ptr: uint64(g+1) << 20, Generation: g + 1}
		for i, op := range []oplog.Op{oplog.OpAllocate, oplog.OpPrepare, oplog.OpDeallocate} {
			at := begin.Add(time.Duration(10*g) + time.Duration(i))
			events = append(events, oplog.Event{Op: op, Time: at, Block: id, Bytes: 64, Requested: 64})
		}
	}
	pending := listedBlock{memory: memoryOfEvent(&events[3]), state: core.Retired}
	for at, want := range map[time.Time][]core.Generation{begin.Add(15): {2, 3}, {}: {1, 2, 3}} {
		h := &loaded{events: events, listed: map[core.Generation]listedBlock{2: pending}, listedAt: at}
		h.findOrigin()
		must.Do(t, h.keepBooks())
		var left []core.Generation
		for _, b := range h.replay(h.books[0], func(step, *memory, int64, *oplog.Event) {}).left() {
			left = append(left, b.id.Generation)
		}
		if !slices.Equal(left, want) {
			t.Errorf("listed at %v: %v are left, not %v", at, left, want)
		}
	}
}

// A ring may lose the allocation of a block that the resources list, and keep that of an older block whose
// addresses it has. The snapshot says that the older one
// was there first, and was freed.
func TestABlockWhoseAllocationIsLostComesAfterTheOlderOneThere(t *testing.T) {
	begin := time.Unix(1, 0)
	older := oplog.Event{Op: oplog.OpAllocate, Time: begin, Duration: 5, Bytes: 4096,
		Block: core.BlockID{Ptr: 1 << 20, Generation: 1}}
	free, release := older, older
	free.Op, free.Time = oplog.OpDeallocate, begin.Add(10)
	release.Op, release.Time = oplog.OpRelease, begin.Add(20)
	launch := oplog.Event{Op: oplog.OpFinish, Time: begin.Add(30)}
	var files snapshots
	for what, events := range map[string][]oplog.Event{
		"free lost":             {older, launch},
		"release lost":          {older, free, launch},
		"released":              {older, free, release, launch},
		"its own free lost too": {free, launch},
	} {
		for _, at := range []uint64{1<<20 - 2048, 1 << 20, 1<<20 + 2048} {
			for _, state := range []core.BlockState{core.Live, core.Retired, core.Quarantined} {
				younger := listedBlock{memory: memoryOf(core.BlockID{Ptr: at, Generation: 2}, 4096, 4096, "younger"), state: state}
				name := fmt.Sprintf("%s, at %#x, %v", what, at, state)
				h := load(t, events, map[core.Generation]listedBlock{2: younger})
				_, r := follow(t, name, h)
				if left := r.left(); len(left) != 1 || left[0].memory != younger.memory {
					t.Errorf("%s: %v is left", name, left)
				}
				files.write(t, name, h)
			}
		}
	}
	files.check(t)
}
