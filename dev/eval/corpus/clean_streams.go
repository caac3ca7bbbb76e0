package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// cleanStreams cross streams in unusual and legal ways.
func cleanStreams() []Case {
	return []Case{
		clean("freed-behind-another-stream", "a block is last used on another stream than its own, and freed at once", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Filled(x, "rows", words, 1)
			release := w.Hold(y)
			w.Write("update_rows", y, b, 2)
			w.Free(b)
			release()
		}),
		clean("ping-pong", "two streams overwrite each other's block in turn", func(w *World) {
			x, y := w.Stream(), w.Stream()
			a, b := w.Filled(x, "ping", words, 1), w.Filled(y, "pong", words, 2)
			for range 10 {
				w.Copy("ping", x, a, b, words)
				w.Copy("pong", y, b, a, words)
			}
			w.Free(a, b)
		}),
		clean("read-by-eight-streams", "eight streams read a block at a time, and it is freed at once", func(w *World) {
			x := w.Stream()
			b := w.Filled(x, "table", words, 1)
			for range 8 {
				w.Read("use_table", w.Stream(), b)
			}
			w.Free(b)
		}),
		clean("lease-released-before-the-free", "a block outlives the lease of its stream, which has another holder by then", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Filled(x, "rows", words, 1)
			w.must(x.Release())
			next := w.Stream()
			w.Write("update_rows", y, b, 2)
			other := w.Filled(next, "other", words, 3)
			w.Free(b, other)
		}),
		clean("adopted-stream-given-up", "a block is used and freed after the adopted stream of its allocation was given up", func(w *World) {
			a, y := w.Adopt(), w.Stream()
			b := w.Filled(a, "rows", words, 1)
			w.must(a.Release())
			w.Read("use_rows", y, b)
			w.Free(b)
		}),
		clean("default-stream-declared", "a launch on the default stream writes what leased streams read", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Words(x, "rows", words)
			w.must(w.launchedOnDefault("fill_rows", []core.Use{b.W()}, func(h driver.Stream) error { return w.enqueue(x.writes(b.At(0), words, 1), h) }))
			w.Read("use_rows", x, b)
			w.Read("use_rows", y, b)
			w.Free(b)
		}),
		clean("host-waits-instead-of-a-fence", "the host waits for the writer, and then a raw reader is enqueued elsewhere and recorded", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Filled(x, "rows", words, 1)
			w.Sync(x)
			w.Raw(y.reads(b.At(0), words))
			w.must(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
			w.Free(b)
		}),
		clean("recorded-on-the-writers-stream", "raw work is recorded on the stream that everything before it ran on", func(w *World) {
			x := w.Stream()
			b := w.Filled(x, "rows", words, 1)
			w.Raw(w.overwriting(x, b))
			w.must(w.Core().RecordBlockUse(w.ctx, b.ID, x.ID()))
			w.Read("use_rows", x, b)
			w.Free(b)
		}),
		clean("recorded-behind-a-fenced-launch", "raw work is recorded on a stream that a fenced launch has made wait for the writer already", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Filled(x, "rows", words, 1)
			w.Read("use_rows", y, b)
			w.Raw(y.reads(b.At(0), words))
			w.must(w.Core().RecordBlockUse(w.ctx, b.ID, y.ID()))
			w.Write("update_rows", x, b, 2)
			w.Free(b)
		}),
		clean("first-used-elsewhere", "a fresh block is first used on another stream, before the allocation's own is done with older work", func(w *World) {
			x, y := w.Stream(), w.Stream()
			release := w.Hold(x)
			b := w.Words(x, "scratch", words)
			w.Write("fill_scratch", y, b, 1)
			w.Read("use_scratch", y, b)
			w.Free(b)
			release()
		}),
	}
}
