// Package lockrecorder stands in for package sync in a build that records in which order
// locks are taken. A lock has a class, the place where it is declared; every instance
// of it is of that class. The class is the size of the type parameter, which the
// overlay of package lockorder writes behind each declaration.
package lockrecorder

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// File is the name of the variable with the path of the file to which each new pair of
// classes is appended.
const File = "LOCK_ORDER_PAIRS"

// MaxClasses bounds the numbers of classes.
const MaxClasses = 256

// These are the standard library's: they are no locks.
type (
	// Cond is the standard library's.
	Cond = sync.Cond
	// Locker is the standard library's.
	Locker = sync.Locker
	// Map is the standard library's.
	Map = sync.Map
	// Once is the standard library's.
	Once = sync.Once
	// Pool is the standard library's.
	Pool = sync.Pool
	// WaitGroup is the standard library's.
	WaitGroup = sync.WaitGroup
)

// NewCond is the standard library's.
func NewCond(l Locker) *Cond { return sync.NewCond(l) }

// OnceFunc is the standard library's.
func OnceFunc(f func()) func() { return sync.OnceFunc(f) }

// OnceValue is the standard library's.
func OnceValue[T any](f func() T) func() T { return sync.OnceValue(f) }

// OnceValues is the standard library's.
func OnceValues[T1, T2 any](f func() (T1, T2)) func() (T1, T2) { return sync.OnceValues(f) }

// Mutex is a [sync.Mutex] of a class.
type Mutex[C any] struct {
	real  sync.Mutex
	owner uint64 // the goroutine that holds it
}

// Lock records the pairs with what the goroutine holds.
func (m *Mutex[C]) Lock() {
	g := goroutine()
	wants(g, class[C]())
	m.real.Lock()
	m.owner = g
	took(g, class[C](), unsafe.Pointer(m))
}

// TryLock does not wait, so it is no second half of a pair.
func (m *Mutex[C]) TryLock() bool {
	if !m.real.TryLock() {
		return false
	}
	m.owner = goroutine()
	took(m.owner, class[C](), unsafe.Pointer(m))
	return true
}

// Unlock may be called by another goroutine than Lock.
func (m *Mutex[C]) Unlock() {
	gave(m.owner, unsafe.Pointer(m))
	m.real.Unlock()
}

// RWMutex is a [sync.RWMutex] of a class. Readers count as writers: each blocks the other.
type RWMutex[C any] struct{ real sync.RWMutex }

// Lock records the pairs with what the goroutine holds.
func (m *RWMutex[C]) Lock() { m.take(m.real.Lock) }

// RLock records the pairs with what the goroutine holds.
func (m *RWMutex[C]) RLock() { m.take(m.real.RLock) }

// TryLock does not wait, so it is no second half of a pair.
func (m *RWMutex[C]) TryLock() bool { return m.try(m.real.TryLock) }

// TryRLock does not wait, so it is no second half of a pair.
func (m *RWMutex[C]) TryRLock() bool { return m.try(m.real.TryRLock) }

func (m *RWMutex[C]) try(lock func() bool) bool {
	locked := lock()
	if locked {
		took(goroutine(), class[C](), unsafe.Pointer(m))
	}
	return locked
}

// Unlock must be called by the goroutine that called Lock.
func (m *RWMutex[C]) Unlock() {
	gave(goroutine(), unsafe.Pointer(m))
	m.real.Unlock()
}

// RUnlock must be called by the goroutine that called RLock.
func (m *RWMutex[C]) RUnlock() {
	gave(goroutine(), unsafe.Pointer(m))
	m.real.RUnlock()
}

func (m *RWMutex[C]) take(lock func()) {
	g := goroutine()
	wants(g, class[C]())
	lock()
	took(g, class[C](), unsafe.Pointer(m))
}

func class[C any]() int {
	var c C
	return int(unsafe.Sizeof(c))
}

// taken is a lock that a goroutine holds.
type taken struct {
	class int
	lock  unsafe.Pointer
	calls stack
}

var (
	held [64]struct {
		sync.Mutex
		of map[uint64][]taken // by goroutine, in the order taken
	}
	seen [MaxClasses][MaxClasses]atomic.Bool
)

// wants records that g may wait for a lock of a class.
func wants(g uint64, class int) {
	shard := &held[g%uint64(len(held))]
	shard.Lock()
	defer shard.Unlock()
	for _, outer := range shard.of[g] {
		if seen[outer.class][class].Load() {
			continue
		}
		calls := callers()
		if way, ok := calls.way(&outer.calls); ok && !seen[outer.class][class].Swap(true) {
			write(outer.class, class, way)
		}
	}
}

func took(g uint64, class int, lock unsafe.Pointer) {
	shard := &held[g%uint64(len(held))]
	shard.Lock()
	defer shard.Unlock()
	if shard.of == nil {
		shard.of = map[uint64][]taken{}
	}
	shard.of[g] = append(shard.of[g], taken{class, lock, callers()})
}

func gave(g uint64, lock unsafe.Pointer) {
	shard := &held[g%uint64(len(held))]
	shard.Lock()
	defer shard.Unlock()
	of := shard.of[g]
	i := slices.IndexFunc(of, func(t taken) bool { return t.lock == lock })
	if of = slices.Delete(of, i, i+1); len(of) == 0 {
		delete(shard.of, g)
		return
	}
	shard.of[g] = of
}

// goroutine is the number of the caller's, which the runtime tells in a stack trace alone.
func goroutine() uint64 {
	var buf [64]byte
	text := buf[:runtime.Stack(buf[:], false)]
	digits, _, _ := bytes.Cut(bytes.TrimPrefix(text, []byte("goroutine ")), []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the runtime begins a stack by %q", text))
	}
	return n
}

// stack are the calls that led to a lock, the innermost first.
type stack struct {
	pcs [48]uintptr
	n   int
}

func callers() (s stack) {
	s.n = runtime.Callers(2, s.pcs[:])
	return s
}

// frames are the calls outside of this package and of what is called Lock, the
// outermost first.
func (s *stack) frames() (all []runtime.Frame) {
	frames := runtime.CallersFrames(s.pcs[:s.n])
	for more := s.n > 0; more; {
		var f runtime.Frame
		if f, more = frames.Next(); len(all) > 0 || !strings.Contains(f.Function, "/lockorder/lockrecorder.") && !strings.HasSuffix(f.Function, "Lock") {
			all = append(all, f)
		}
	}
	slices.Reverse(all)
	return all
}

// way are the calls between a lock and this one. There is none if a test took the outer
// lock, or if a test's stand-in for another part was called in between.
func (s *stack) way(outer *stack) (string, bool) {
	from, to := outer.frames(), s.frames()
	shared := 0
	for shared < min(len(from), len(to)) && from[shared].Function == to[shared].Function {
		shared++
	}
	if len(from) == 0 || ofTest(from[len(from)-1]) || shared == 0 {
		return "", false
	}
	var names []string
	for _, f := range to[shared-1:] {
		if ofTest(f) {
			return "", false
		}
		names = append(names, fmt.Sprintf("%s:%d", f.Function[strings.LastIndexByte(f.Function, '/')+1:], f.Line))
	}
	return strings.Join(names, " > "), true
}

func ofTest(f runtime.Frame) bool {
	return strings.HasSuffix(f.File, "_test.go") || strings.Contains(f.Function, "/drivertest.") || strings.Contains(f.Function, "/coretest.")
}

// write appends a pair and the calls between its locks to the file.
func write(outer, inner int, way string) {
	path := os.Getenv(File)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%d %d %s\n", outer, inner, way); err != nil { // one write: other processes append too
		panic(err)
	}
}
