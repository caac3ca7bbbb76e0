package interleave

import "sync"

// Mutex is a [sync.Mutex] whose calls are steps.
type Mutex struct {
	object Object
	real   sync.Mutex
	held   bool
}

// Lock is a step that comes when the lock is free.
func (m *Mutex) Lock() {
	if current == nil {
		m.object.step(true)
		m.real.Lock()
		return
	}
	r, t := exploring, current
	m.object.meet(r, t)
	r.one[0] = Access{&m.object, true}
	r.before(t, r.one[:], m)
	m.held = true
}

func (m *Mutex) isFree() bool { return !m.held }

// mostTries is how often in a row a goroutine tries for a lock in vain before its next try comes when that is free:
// one that polls would not end otherwise.
const mostTries = 3

// TryLock is a step.
func (m *Mutex) TryLock() bool {
	if t := current; t != nil && t.tried == m && t.tries == mostTries {
		m.Lock()
		t.tried = nil
		return true
	}
	m.object.step(true)
	switch t := current; {
	case t == nil:
		return m.real.TryLock()
	case !m.held:
		m.held, t.tried = true, nil
		return true
	case t.tried != m:
		t.tried, t.tries = m, 0
	}
	current.tries++
	return false
}

// Unlock is a step.
func (m *Mutex) Unlock() {
	m.object.step(true)
	if current == nil {
		m.real.Unlock()
		return
	}
	if !m.held {
		exploring.fail("a lock was unlocked that was not held")
	}
	m.held = false
}

// RWMutex is a [sync.RWMutex] whose calls are steps; those of readers are in no order among each other.
// A writer that waits keeps no reader out.
type RWMutex struct {
	object  Object
	real    sync.RWMutex
	held    bool
	readers sharing
}

func (m *RWMutex) isFree() bool { return !m.held && m.readers.n == 0 }

// sharing is what a reader waits for.
type sharing struct {
	of *RWMutex
	n  int
}

func (s *sharing) isFree() bool { return !s.of.held }

// Lock is a step that comes when the lock is free.
func (m *RWMutex) Lock() {
	if current == nil {
		m.object.step(true)
		m.real.Lock()
		return
	}
	m.take(true, m)
	m.held = true
}

// RLock is a step that comes when nobody has the lock alone.
func (m *RWMutex) RLock() {
	if current == nil {
		m.object.step(false)
		m.real.RLock()
		return
	}
	m.readers.of = m
	m.take(false, &m.readers)
	m.readers.n++
}

func (m *RWMutex) take(write bool, until lock) {
	r, t := exploring, current
	m.object.meet(r, t)
	r.one[0] = Access{&m.object, write}
	r.before(t, r.one[:], until)
}

// TryLock is a step.
func (m *RWMutex) TryLock() bool {
	m.object.step(true)
	if current == nil {
		return m.real.TryLock()
	}
	free := m.isFree()
	m.held = m.held || free
	return free
}

// Unlock is a step.
func (m *RWMutex) Unlock() {
	m.object.step(true)
	switch {
	case current == nil:
		m.real.Unlock()
	case !m.held:
		exploring.fail("a lock was unlocked that was not held")
	}
	m.held = false
}

// RUnlock is a step.
func (m *RWMutex) RUnlock() {
	m.object.step(false)
	switch {
	case current == nil:
		m.real.RUnlock()
		return
	case m.readers.n == 0:
		exploring.fail("a lock was unlocked that was not shared")
	}
	m.readers.n--
}

// Map is the standard library's: no interleaving of it is tried. The files that may have one
// are named in package overlay, whose tests hold them to that.
type Map = sync.Map

// OnceFunc is the standard library's.
func OnceFunc(f func()) func() { return sync.OnceFunc(f) }

// Pool is a [sync.Pool] that every goroutine has for itself while it is scheduled,
// so that it gets back at once what it has just put: the worst for those who
// still look there.
type Pool struct {
	New func() any

	real  sync.Pool
	epoch uint32
	free  [maxThreads + 1][]any
}

// Get returns what was put last, by this goroutine or before it ran.
func (p *Pool) Get() any {
	if exploring == nil {
		if v := p.real.Get(); v != nil {
			return v
		}
		return p.fresh()
	}
	p.renew()
	for _, of := range []int{Current() + 1, 0} {
		if n := len(p.free[of]); n > 0 && (of > 0 || Current() <= 0) {
			v := p.free[of][n-1]
			p.free[of] = p.free[of][:n-1]
			return v
		}
	}
	return p.fresh()
}

func (p *Pool) fresh() any {
	if p.New == nil {
		return nil
	}
	return p.New()
}

// Put keeps v.
func (p *Pool) Put(v any) {
	if exploring == nil {
		p.real.Put(v)
		return
	}
	p.renew()
	of := Current() + 1
	p.free[of] = append(p.free[of], v)
}

func (p *Pool) renew() {
	if p.epoch != epoch {
		p.epoch = epoch
		clear(p.free[:])
	}
}
