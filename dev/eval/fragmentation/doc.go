// Package fragmentation bounds what the runtime's own pool reserves for what recorded
// programs have live, on a simulated device that runs behind the host. Its tests are all
// that it has.
package fragmentation
