package line

// Ledger is a number of bytes, what is given of them, and who waits for some. Its methods are the
// transitions of package admit, which calls them under its lock; dev/proof/admission explores them.
// It is a value without locks, for one goroutine at a time.
//
// Who waits has nothing. Who has something never waits: its growth is counted at once, and it is
// told how much of that there was no room for. So whoever waits is let in when those have left who
// are in, and none of these needs anybody to leave.
type Ledger struct {
	// Told are the decisions of the last calls, in their order. The caller takes them away.
	Told []Decision

	order        Order
	wants        []want // by place
	limit, given uint64
}

// want is what one who waits asks for: bytes, of which so many as the limit will do, but not fewer
// than least.
type want struct{ least, bytes uint64 }

// Decision is that a place was left, with bytes given, or 0 for one who wants what there cannot be.
type Decision struct {
	Place int
	Bytes uint64
}

// NewLedger is one of so many bytes, with nobody in it; see [Order] for passes.
func NewLedger(limit uint64, passes int) Ledger {
	return Ledger{order: Order{Passes: passes}, limit: limit}
}

// Limit is how many bytes there are.
func (l *Ledger) Limit() uint64 { return l.limit }

// Given is how many of them are given: more than the limit, if what was given has grown, or the limit
// was lowered.
func (l *Ledger) Given() uint64 { return l.given }

// Waiting is how many are not decided on.
func (l *Ledger) Waiting() int { return l.order.Len() }

// Ask joins the line, for at least one byte.
func (l *Ledger) Ask(least, bytes uint64) (place int) {
	place = l.order.Join(0)
	if place == len(l.wants) {
		l.wants = append(l.wants, want{})
	}
	l.AskAgain(place, least, bytes)
	return place
}

// AskAgain changes what a place that is not decided on waits for.
func (l *Ledger) AskAgain(place int, least, bytes uint64) {
	l.wants[place] = want{least: max(1, least), bytes: max(1, least, bytes)}
	l.fit(place)
	l.next()
}

// GiveUp leaves a place that is not decided on.
func (l *Ledger) GiveUp(place int) {
	l.order.Leave(place)
	l.next()
}

// Grant is what one inside has: what is reserved, and what is used, of which the larger is given.
type Grant struct{ Reserved, Used uint64 }

func (g Grant) given() uint64 { return max(g.Reserved, g.Used) }

// Use is told that so many bytes are used. It returns how many of those that were not given there is
// no room for: they are given all the same, because they are used.
func (l *Ledger) Use(g *Grant, bytes uint64) (short uint64) {
	return l.change(g, Grant{g.Reserved, bytes})
}

// Settle gives back what is reserved beyond so many bytes, and is not used.
func (l *Ledger) Settle(g *Grant, bytes uint64) { l.change(g, Grant{min(g.Reserved, bytes), g.Used}) }

// Leave gives all back.
func (l *Ledger) Leave(g *Grant) { l.change(g, Grant{}) }

func (l *Ledger) change(g *Grant, to Grant) (short uint64) {
	before, now := g.given(), to.given()
	*g = to
	l.given = l.given - before + now
	if now > before && l.given > l.limit {
		return min(now-before, l.given-l.limit)
	}
	l.next()
	return 0
}

// SetLimit changes how many bytes there are. Those who wait for what there cannot be any more are
// told.
func (l *Ledger) SetLimit(limit uint64) {
	l.limit = limit
	for place, ok := l.order.First(); ok; {
		next, more := l.order.Next(place)
		l.fit(place)
		place, ok = next, more
	}
	l.next()
}

// fit has a place wait for what there can be, or turns it away.
func (l *Ledger) fit(place int) {
	if w := l.wants[place]; w.least > l.limit {
		l.decide(place, 0)
	} else {
		l.order.SetBytes(place, min(w.bytes, l.limit))
	}
}

// next lets in who may go.
func (l *Ledger) next() {
	for {
		place, ok := l.order.First()
		if !ok {
			return
		}
		room := l.limit - min(l.limit, l.given)
		if l.order.Bytes(place) > room {
			if place, ok = l.order.Pass(room); !ok {
				return
			}
		}
		bytes := l.order.Bytes(place)
		l.given += bytes
		l.decide(place, bytes)
	}
}

func (l *Ledger) decide(place int, bytes uint64) {
	l.order.Leave(place)
	l.Told = append(l.Told, Decision{place, bytes})
}

// Guess is what a job of which nothing is known reserves of a limit, in bytes: an eighth, and not
// nothing.
func Guess(limit uint64) uint64 { return max(1, limit/8) }

// State is a ledger's, with nothing told.
type State struct {
	Limit, Given uint64
	Waiting      []Waiter // in their order
}

// Waiter is one who waits.
type Waiter struct {
	Least, Wants, Bytes uint64
	Passed              int
}

// State is what the next calls depend on.
func (l *Ledger) State() State {
	s := State{Limit: l.limit, Given: l.given}
	for at, ok := l.order.First(); ok; at, ok = l.order.Next(at) {
		s.Waiting = append(s.Waiting, Waiter{l.wants[at].least, l.wants[at].bytes, l.order.places[at].bytes, l.order.places[at].passed})
	}
	return s
}

// Restore takes a ledger to a state. The places are numbered in their order, from 0.
func (l *Ledger) Restore(s State) {
	*l = Ledger{Told: l.Told[:0], wants: l.wants[:0], limit: s.Limit, given: s.Given,
		order: Order{Passes: l.order.Passes, places: l.order.places[:0]}}
	for _, w := range s.Waiting {
		at := l.order.Join(w.Bytes)
		l.order.places[at].passed = w.Passed
		l.wants = append(l.wants, want{w.Least, w.Wants})
	}
}
