package line

import (
	"fmt"
	"testing"
	"time"
)

func awake(p *Place) bool {
	select {
	case <-p.Turn():
		return true
	default:
		return false
	}
}

func TestTheFirstHasItsTurnAndThenTheNext(t *testing.T) {
	var waiters []bool
	l := &Line{OnWaiters: func(waiting bool) { waiters = append(waiters, waiting) }}
	a, b, c := l.Join(1, "", time.Now()), l.Join(1, "", time.Now()), l.Join(1, "", time.Now())
	l.Wake()
	l.Wake()
	if !awake(a) || awake(a) || awake(b) || !a.MayTry() || b.MayTry() {
		t.Error("not the first alone has its turn, once")
	}
	b.Leave() // one who gives up costs nobody a turn
	if !awake(a) {
		t.Error("the first does not look again")
	}
	a.Leave()
	if !awake(c) || !c.MayTry() {
		t.Error("the next has no turn")
	}
	c.Leave()
	if fmt.Sprint(waiters) != "[true false]" || l.Len() != 0 {
		t.Errorf("told %v, %d wait", waiters, l.Len())
	}
	l.Wake()
}

func TestOnlySoManyPassOneThatDoesNotFit(t *testing.T) {
	for _, passes := range []int{0, 2} {
		l := &Line{Passes: passes}
		large := l.Join(100, "", time.Now())
		passed := 0
		for range 5 {
			tooLarge, small := l.Join(50, "", time.Now()), l.Join(10, "", time.Now())
			large.LetPass(20)
			if awake(tooLarge) {
				t.Error("one passes that does not fit either")
			}
			if awake(small) && small.MayTry() {
				passed++
			}
			if small.MayTry() {
				t.Error("it may try twice")
			}
			tooLarge.LetPass(20)
			small.Leave()
			tooLarge.Leave()
		}
		if passed != passes {
			t.Errorf("%d passed, want %d", passed, passes)
		}
	}
}

// The first may look again before the one that it let pass has its room: that one does not pass twice.
func TestOneThatPassesIsCountedOnce(t *testing.T) {
	l := &Line{Passes: 2}
	large, small, next := l.Join(100, "", time.Now()), l.Join(10, "", time.Now()), l.Join(10, "", time.Now())
	large.LetPass(20)
	large.LetPass(20)
	if !awake(small) || !small.MayTry() || awake(next) {
		t.Error("not one at a time passes")
	}
	large.LetPass(20) // while it tries
	small.Leave()
	large.LetPass(20)
	if !awake(next) || !next.MayTry() {
		t.Error("only one passed where two may")
	}
	next.LetPass(20) // in vain
	if large.LetPass(20); next.MayTry() {
		t.Error("three passed where two may")
	}
}

// BenchmarkTurn is a wake and a change of the first, beside so many who wait.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			var l Line
			for range n {
				l.Join(1, "", time.Now())
			}
			for b.Loop() {
				l.Wake()
				number, _ := l.order.First()
				first := l.places[number]
				if !first.MayTry() {
					b.Fatal("not the first")
				}
				first.Leave()
				l.Join(1, "", time.Now())
			}
		})
	}
}
