package spanpipe

import (
	"cmp"
	"os"
	"strconv"
)

// The defaults of [Config].
const (
	// DefaultQueue is 65536 spans. A span takes about 1.2 KiB while it waits, so
	// a full queue takes about 75 MiB.
	DefaultQueue = 1 << 16
	// DefaultBatch is 2048 spans. A receiver of gRPC takes 4 MiB by default,
	// which leaves 2 KiB for each; where names have 120 bytes and every launch
	// waits for another stream, a span takes 560 bytes, and 8192 pass the limit.
	DefaultBatch = 1 << 11
)

// Config says how much a pipe holds. The zero Config is a good one.
type Config struct {
	// Queue is the most spans that are queued or being exported at a time; one
	// more is dropped. Zero or less means what the standard variable
	// OTEL_BSP_MAX_QUEUE_SIZE says, or else [DefaultQueue].
	Queue int
	// Batch is the most spans that the exporter is given at a time. Zero or
	// less means what OTEL_BSP_MAX_EXPORT_BATCH_SIZE says, or else
	// [DefaultBatch]. It is at most Queue.
	Batch int
}

func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(max(c.Queue, 0), variable("OTEL_BSP_MAX_QUEUE_SIZE"), DefaultQueue)
	c.Batch = cmp.Or(max(c.Batch, 0), variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), DefaultBatch)
	c.Batch = min(c.Batch, c.Queue)
	return c
}

// variable is the number that an environment variable says, 0 if it says none.
func variable(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
