// Package loadgen makes requests to the example service: sorts and joins of
// mixed sizes at a steady rate, each result compared with the CPU's.
//
// Requests are sent when they are due, whether or not others were answered, so
// that a slow service does not slow its own measurement down. Those that would
// be more than may be in flight are skipped and counted.
package loadgen

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// What may be asked for at most: a typing mistake should not become an attack.
const (
	MaxRate     = 10_000
	MaxFor      = 24 * time.Hour
	MaxInFlight = 4096
	MaxRows     = 1 << 24
)

// Config says what to send, and where.
type Config struct {
	// URL is the service's, such as http://127.0.0.1:8080.
	URL string
	// AnyHost permits a URL that is not this machine's.
	AnyHost bool
	// Rate is requests a second, For how long they are sent.
	Rate float64
	For  time.Duration
	// InFlight is how many requests may be under way.
	InFlight int
	// Rows is the most rows of a request. Sizes are spread evenly over the
	// orders of magnitude up to it.
	Rows int
	// Seed makes the requests: number n is the same for the same seed.
	Seed uint64
	// Timeout is how long a request may take.
	Timeout time.Duration
}

// Check returns the error that Run would return before it sends anything.
func (c Config) Check() error {
	switch {
	case !(c.Rate > 0 && c.Rate <= MaxRate): // NaN is neither
		return fmt.Errorf("a rate of %v a second: say more than 0, and at most %d", c.Rate, MaxRate)
	case c.For <= 0 || c.For > MaxFor:
		return fmt.Errorf("for %v: say more than 0, and at most %v", c.For, MaxFor)
	case c.InFlight < 1 || c.InFlight > MaxInFlight:
		return fmt.Errorf("%d requests in flight: say 1 to %d", c.InFlight, MaxInFlight)
	case c.Rows < 1 || c.Rows > MaxRows:
		return fmt.Errorf("%d rows: say 1 to %d", c.Rows, MaxRows)
	case c.Timeout <= 0:
		return fmt.Errorf("a timeout of %v: say more than 0", c.Timeout)
	}
	return c.checkURL()
}

func (c Config) checkURL() error {
	u, err := url.Parse(c.URL)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no URL of a service, such as http://127.0.0.1:8080", c.URL)
	}
	ip := net.ParseIP(u.Hostname())
	if !c.AnyHost && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return errors.New(u.Hostname() + " is not this machine: load other hosts only if they are yours, and say so")
	}
	return nil
}
