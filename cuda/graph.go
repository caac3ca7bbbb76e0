package cuda

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Graph is work that was captured once (see [Lease.Capture]) and can be launched
// many times. It remembers the blocks that it was captured over, by their
// generations: a launch after one of them was freed is refused, although the
// addresses in the graph may belong to somebody else's memory by then. It keeps
// no block alive. A graph must be closed: the driver keeps one that is not
// until the device's context ends. All methods are safe for concurrent use.
type Graph struct {
	drv  driver.Driver
	name string
	uses []core.Use

	// mu is held over the driver's calls, which must not be concurrent for
	// one graph.
	mu   sync.Mutex
	exec driver.Graph // 0 after Close
}

func newGraph(drv driver.Driver, name string, uses []core.Use, exec driver.Graph) *Graph {
	return &Graph{drv: drv, name: core.BoundName(name), uses: slices.Clone(uses), exec: exec}
}

// Name is the name of the graph's launches.
func (g *Graph) Name() string { return g.name }

// Uses are the blocks that each launch is fenced for, as they were declared.
func (g *Graph) Uses() []core.Use { return slices.Clone(g.uses) }

// Launch enqueues the graph's work on the lease's stream, fenced for the blocks
// that it was captured over like any launch: a conflicting launch that is
// announced on another stream is waited for until ctx ends. The driver orders
// it behind the last launch of the same graph, on whatever stream that was. It
// returns when the work is enqueued. Errors are those of [core.Runtime.Launch],
// among them [core.UseAfterFreeError] if a block was freed since; one that
// matches [core.ErrClosed] after Close; and [core.StreamMisuseError] for a lease of
// another device. A nil runtime or lease is a [core.InvalidRequestError].
func (g *Graph) Launch(ctx context.Context, rt core.AnyRuntime, on *Lease) error {
	if g == nil {
		return missingHandle("Graph.Launch", "graph")
	}
	r, err := needRuntime("Graph.Launch", rt)
	if err != nil {
		return err
	}
	if err := needLease("Graph.Launch", on); err != nil {
		return err
	}
	if on.pool.drv != g.drv {
		return &core.StreamMisuseError{Op: "Graph.Launch", Stream: on.id, Reason: fmt.Sprintf("the graph %q was captured on another device: capture it there", g.name)}
	}
	return r.LaunchNamed(ctx, g.name, on.ID(), g.uses, func(context.Context) error {
		return g.enqueue(on.Handle())
	})
}

func (g *Graph) enqueue(s driver.Stream) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exec == 0 {
		return core.NotEnqueued(fmt.Errorf("Graph.Launch: the graph %q is %w", g.name, core.ErrClosed))
	}
	return refusedUnlessSticky(g.drv.GraphLaunch(g.exec, s))
}

// Close gives the graph back to the driver; launches that were enqueued still
// run. A second Close is an error that matches [core.ErrClosed]; after a
// driver's error it may be called again. It may block in the driver.
func (g *Graph) Close() error {
	if g == nil {
		return missingHandle("Graph.Close", "graph")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exec == 0 {
		return fmt.Errorf("Graph.Close: the graph %q is %w", g.name, core.ErrClosed)
	}
	if err := g.drv.GraphDestroy(g.exec); err != nil {
		return err
	}
	g.exec = 0
	return nil
}

// discard gives up a graph that nobody gets, or keeps it for Close.
func (p *StreamPool) discard(exec driver.Graph) {
	if exec == 0 || p.drv.GraphDestroy(exec) == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.graphs = append(p.graphs, exec)
}

// destroyGraphs gives back what discard could not.
func (p *StreamPool) destroyGraphs() (err error) {
	p.mu.Lock()
	graphs := p.graphs
	p.graphs = nil
	p.mu.Unlock()
	for _, exec := range graphs {
		if destroyErr := p.drv.GraphDestroy(exec); destroyErr != nil {
			err = destroyErr
			p.mu.Lock()
			p.graphs = append(p.graphs, exec)
			p.mu.Unlock()
		}
	}
	return err
}
