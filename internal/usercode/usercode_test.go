package usercode

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// unwinds calls f on a goroutine of its own, and says how that ended.
func unwinds(f func()) (how any) {
	done := make(chan any, 1)
	go func() {
		returned := false
		defer func() {
			switch p := recover(); {
			case p != nil:
				done <- p
			case !returned:
				done <- "Goexit"
			default:
				done <- nil
			}
		}()
		f()
		returned = true
	}()
	return <-done
}

func TestAllStepsAreDoneHoweverTheyEnd(t *testing.T) {
	list := make([]int, 40)
	for i := range list {
		list[i] = i
	}
	for _, c := range []struct {
		panics, exits []int
		want          any
	}{{nil, nil, nil}, {[]int{3}, nil, 3}, {nil, []int{0}, "Goexit"}, {list, nil, 39}, {nil, list, "Goexit"}, {[]int{39},
		[]int{5}, 39}} {
		var called []int
		how := unwinds(func() {
			All(list, func(i int) {
				called = append(called, i)
				if slices.Contains(c.panics, i) {
					panic(i)
				}
				if slices.Contains(c.exits, i) {
					runtime.Goexit()
				}
			})
		})
		if how != c.want || !slices.Equal(called, list) {
			t.Errorf("panics at %v, exits at %v: ended by %v, want %v; called %v", c.panics, c.exits, how, c.want, called)
		}
	}
}

func TestWhatIsGivenBackIsTriedTwiceHoweverTheFirstTryEnds(t *testing.T) {
	failure := errors.New("failure")
	for name, first := range map[string]func() error{
		"an error": func() error { return failure }, "a panic": func() error { panic(failure) },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		tries := 0
		how := unwinds(func() {
			if err := Surely(func() error {
				if tries++; tries == 1 {
					return first()
				}
				return nil
			}); err != nil {
				t.Errorf("%s, then a success: %v", name, err)
			}
		})
		if tries != 2 || name == "a panic" && how != any(failure) {
			t.Errorf("%s: %d tries, ended by %v", name, tries, how)
		}
	}
	if err := Surely(func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("two failures are %v", err)
	}
}

func TestALoopGoesOnWhateverItCalls(t *testing.T) {
	begun, ended := 0, make(chan struct{})
	Go("a loop of this test", func() {
		switch begun++; begun {
		case 1, 4:
			runtime.Goexit()
		case 2, 3:
			panic("the callback's bug")
		}
	}, func() { close(ended) })
	<-ended
	if begun != 5 {
		t.Errorf("begun %d times", begun)
	}
}

// hostile is a handler of the log that panics itself.
type hostile struct{ slog.Handler }

func (hostile) Enabled(context.Context, slog.Level) bool  { return true }
func (hostile) Handle(context.Context, slog.Record) error { panic("the logger") }
func (h hostile) WithAttrs([]slog.Attr) slog.Handler      { return h }

func TestAPanicOfCodeThatWatchesIsToldOnceWithItsStack(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	n := Panics()
	for range 3 {
		if how := unwinds(func() { Call("a sink of this test", func() { panic("the sink's bug") }) }); how != nil {
			t.Errorf("the caller gets %v", how)
		}
	}
	if said := out.String(); strings.Count(said, "a sink of this test") != 1 ||
		!strings.Contains(said, "the sink's bug") || !strings.Contains(said, "usercode_test.go") || Panics() != n+3 {
		t.Errorf("%d panics were counted, and this was said: %s", Panics()-n, said)
	}
	slog.SetDefault(slog.New(hostile{}))
	if how := unwinds(func() { Call("another of this test", func() { panic("its own") }) }); how != nil {
		t.Errorf("with a logger that panics the caller gets %v", how)
	}
	if how := unwinds(func() { Call("a third of this test", runtime.Goexit) }); how != "Goexit" {
		t.Errorf("Goexit ends in %v", how)
	}
}
