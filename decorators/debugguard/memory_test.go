package debugguard_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
)

// page is the unit in bytes in which test memory comes into being.
const page = 4096

// memory is device memory in the test: real bytes under the fake's pointers,
// and the guard's operations on them. While it is held, operations wait in
// stream order, which is one order for all streams here, until release.
type memory struct {
	mu      sync.Mutex
	pages   map[uint64]*[page]byte
	held    bool
	waiting []func()
	script  map[string][]error
	calls   map[string]int
	// pending counts verifications whose memory was not given back.
	pending int
	delayed time.Duration
}

func newMemory() *memory {
	return &memory{pages: map[uint64]*[page]byte{}, script: map[string][]error{}, calls: map[string]int{}}
}

// failNext makes the next calls of op return errs, one each.
func (m *memory) failNext(op string, errs ...error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script[op] = append(m.script[op], errs...)
}

// begin notes a call and takes its scripted error; mu must be held.
func (m *memory) begin(op string) error {
	m.calls[op]++
	errs := m.script[op]
	if len(errs) == 0 {
		return nil
	}
	m.script[op] = errs[1:]
	return errs[0]
}

// unmet is how many scripted errors no call has met.
func (m *memory) unmet() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, errs := range m.script {
		n += len(errs)
	}
	return n
}

// count is how often op was called.
func (m *memory) count(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// walk calls visit for the n bytes at ptr, page by page, with the offset from
// ptr; mu must be held.
func (m *memory) walk(ptr, n uint64, visit func(offset uint64, part []byte)) {
	for done := uint64(0); done < n; {
		number, within := (ptr+done)/page, (ptr+done)%page
		if m.pages[number] == nil {
			m.pages[number] = new([page]byte)
		}
		part := m.pages[number][within:min(page, within+n-done)]
		visit(done, part)
		done += uint64(len(part))
	}
}

// poke changes n bytes from ptr on, whatever they were, as a kernel would.
func (m *memory) poke(ptr uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enqueue(func() {
		m.walk(ptr, uint64(n), func(_ uint64, part []byte) {
			for i := range part {
				part[i] ^= 0x5A
			}
		})
	})
}

// copy copies n bytes between two places.
func (m *memory) copy(to, from, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var buffer []byte
	m.walk(from, n, func(_ uint64, part []byte) { buffer = append(buffer, part...) })
	m.walk(to, n, func(offset uint64, part []byte) { copy(part, buffer[offset:]) })
}

// Released gives the pages back that lie in a released block, if the memory
// listens to the backend.
func (m *memory) Released(b core.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for number := (b.ID.Ptr + page - 1) / page; (number+1)*page <= b.ID.Ptr+b.Bytes; number++ {
		delete(m.pages, number)
	}
}

func (m *memory) enqueue(work func()) {
	if m.held {
		m.waiting = append(m.waiting, work)
		return
	}
	work()
}

// hold makes the device stop; release lets it catch up.
func (m *memory) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = true
}

// pass lets a device that is held do what waits.
func (m *memory) pass() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.catchUp()
}

func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.catchUp()
	m.held = false
}

func (m *memory) catchUp() {
	for _, work := range m.waiting {
		work()
	}
	m.waiting = nil
}

// Fill implements deviceops.Ops.
func (m *memory) Fill(_ context.Context, _ core.StreamID, regions []deviceops.Region) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("Fill"); err != nil {
		return err
	}
	regions = append([]deviceops.Region(nil), regions...)
	m.enqueue(func() {
		for _, r := range regions {
			m.walk(r.Ptr, r.Bytes, func(offset uint64, part []byte) { copy(part, repeated(r.Pattern, offset, len(part))) })
		}
	})
	return nil
}

// repeated is n bytes of a pattern from an offset in its region on.
func repeated(pattern, offset uint64, n int) []byte {
	all := binary.LittleEndian.AppendUint64(make([]byte, 0, n+16), pattern)
	for len(all) < n+8 {
		all = append(all, all[:min(len(all), cap(all)-len(all))]...)
	}
	return all[offset%8:][:n]
}

// Verify implements deviceops.Ops.
func (m *memory) Verify(_ context.Context, _ core.StreamID, regions []deviceops.Region) (deviceops.Verification, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("Verify"); err != nil {
		return nil, err
	}
	v := &verification{memory: m, done: make(chan struct{})}
	regions = append([]deviceops.Region(nil), regions...)
	m.pending++
	m.enqueue(func() {
		for i, r := range regions {
			v.compare(i, r)
		}
		close(v.done)
	})
	return v, nil
}

// Checksum implements deviceops.Ops, by a sum of another kind than real ones.
func (m *memory) Checksum(_ context.Context, _ core.StreamID, regions []deviceops.Region) (deviceops.Checksums, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("Checksum"); err != nil {
		return nil, err
	}
	v := &verification{memory: m, done: make(chan struct{})}
	regions = append([]deviceops.Region(nil), regions...)
	m.pending++
	m.enqueue(func() {
		for _, r := range regions {
			h := fnv.New64a()
			m.walk(r.Ptr, r.Bytes, func(_ uint64, part []byte) { _, _ = h.Write(part) })
			v.sums = append(v.sums, h.Sum64())
		}
		close(v.done)
	})
	return v, nil
}

// Delay implements deviceops.Ops; it only notes the call.
func (m *memory) Delay(_ context.Context, _ core.StreamID, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d <= 0 {
		panic("a delay of no time")
	}
	m.delayed += d
	return m.begin("Delay")
}

// Synchronize implements deviceops.Ops.
func (m *memory) Synchronize(context.Context, core.StreamID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("Synchronize"); err != nil {
		return err
	}
	m.catchUp()
	return nil
}

type verification struct {
	memory *memory
	done   chan struct{}
	found  []deviceops.Mismatch
	sums   []uint64
	spent  bool
}

func (v *verification) compare(i int, r deviceops.Region) {
	m := deviceops.Mismatch{Region: i}
	v.memory.walk(r.Ptr, r.Bytes, func(offset uint64, part []byte) {
		want := repeated(r.Pattern, offset, len(part))
		if bytes.Equal(part, want) {
			return
		}
		for at := range part {
			if part[at] == want[at] {
				continue
			}
			if m.BadBytes == 0 {
				m.Offset, m.Expected, m.Seen = offset+uint64(at), want[at], part[at]
			}
			m.BadBytes++
		}
	})
	if m.BadBytes > 0 {
		v.found = append(v.found, m)
	}
}

func (v *verification) Poll() (bool, error) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	if err := v.memory.begin("Poll"); err != nil {
		return false, err
	}
	select {
	case <-v.done:
		return true, nil
	default:
		return false, nil
	}
}

func (v *verification) Wait(ctx context.Context) error {
	v.memory.mu.Lock()
	err := v.memory.begin("Wait")
	v.memory.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *verification) Mismatches() ([]deviceops.Mismatch, error) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	v.giveBack()
	return v.found, v.memory.begin("Mismatches")
}

func (v *verification) Sums() ([]uint64, error) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	v.giveBack()
	return v.sums, v.memory.begin("Sums")
}

func (v *verification) Discard() {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	v.giveBack()
}

func (v *verification) giveBack() {
	if v.spent {
		panic("verification was ended twice")
	}
	v.spent = true
	v.memory.pending--
}

var errDevice = &core.DriverError{Op: "test", Code: 1, Name: "TEST", Text: "injected"}
var errMemory = &core.DriverError{Op: "test", Code: 2, Name: "TEST_OOM", Text: "out of memory", OutOfMemory: true}
var errTest = errors.New("injected")
