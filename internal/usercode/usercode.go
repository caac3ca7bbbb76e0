// Package usercode calls the program's code, which may panic, call runtime.Goexit, block or call
// back at any point. There are two kinds of it.
//
//   - Code that watches hears what happened and changes nothing: log sinks, tracer providers with
//     their samplers and span processors, loggers, listeners, functions of a Config. [Call] is the
//     one place that calls it. It ends a panic, logs it with its stack, and the operation goes on.
//   - Code that takes part does a share of the work: layers, a driver, the functions of jobs and
//     launches. Its panic goes on to the caller, because without its share there is no result.
//
// Goexit cannot be stopped, and a layer may panic. So [All] and [Surely] run steps that must all be
// done: they go on in deferred functions. A caller of any of these holds no lock of this module.
package usercode

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// panics is how many calls have panicked in this process.
var panics atomic.Uint64

// Panics is how many calls of [Call] have panicked in this process. It does not block.
func Panics() uint64 { return panics.Load() }

// Call calls code that watches, and returns when f has returned or panicked. what names the code in
// the record of a panic.
func Call(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			panicked(what, p)
		}
	}()
	f()
}

// Go runs loop, which calls the program's code, on a goroutine of its own, and calls ended when
// loop has returned. If a call panics or ends the goroutine, loop begins again on another one, so
// it must keep its state elsewhere. name is loop's in the record of a panic.
func Go(name string, loop, ended func()) {
	go func() {
		returned := false
		defer func() {
			if returned {
				ended()
				return
			}
			time.Sleep(pause)
			Go(name, loop, ended)
		}()
		Call(name, func() {
			loop()
			returned = true
		})
	}()
}

// pause keeps a loop that ends at once from taking a processor.
const pause = time.Millisecond

// told is when the newest panic of each kind of code was told.
var told sync.Map

// tellAgain is how long a panic of the same code is only counted.
const tellAgain = time.Minute

// panicked tells of a panic. The program's logger may have panicked, and may panic again: then
// standard error is told.
func panicked(what string, p any) {
	n := panics.Add(1)
	now := time.Now()
	if last, before := told.Swap(what, now); before && now.Sub(last.(time.Time)) < tellAgain {
		told.Store(what, last)
		return
	}
	said, stack, logged := "", string(debug.Stack()), false
	defer func() {
		if again := recover(); again != nil || !logged {
			terminal.Fprintf(os.Stderr, "fencepost: %s panicked, and its call was left out: %s\n%s\n", what, said,
				terminal.Lines(stack))
		}
	}()
	said = legible.Text(fmt.Sprint(p))
	slog.Default().LogAttrs(context.Background(), slog.LevelError,
		"fencepost: the program's code panicked, and its call was left out",
		slog.String("code", what), slog.String("panic", said), slog.Uint64("panics", n), slog.String("stack", stack))
	logged = true
}

// All calls f with each element in turn, also with those behind one whose call panics or ends the
// goroutine: what has begun to unwind goes on when f was called with the last.
func All[T any](list []T, f func(T)) {
	done := 0
	defer func() {
		if done < len(list) {
			All(list[done:], f)
		}
	}()
	for done < len(list) {
		done++
		f(list[done-1])
	}
}

// Surely calls giveBack once more if that fails, panics or ends the goroutine: a refusal has
// changed nothing, and no other caller asks again. It returns the error of the last call.
func Surely(giveBack func() error) (err error) {
	returned := false
	defer func() {
		if !returned {
			_ = giveBack()
		}
	}()
	err = giveBack()
	returned = true
	if err != nil {
		err = giveBack()
	}
	return err
}
