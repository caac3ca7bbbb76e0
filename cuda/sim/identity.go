package sim

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"sync"
)

// uuidForm is NVIDIA's, of a GPU and of an instance of one.
var uuidForm = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// process is what tells the simulated devices of this process from those of
// others.
var process = sync.OnceValue(func() (number [6]byte) {
	_, _ = rand.Read(number[:]) // which does not fail
	return number
})

// defaultUUID begins with zeros, as no GPU's does, and ends with the ordinal
// and the process.
func defaultUUID(ordinal int) string {
	return fmt.Sprintf("GPU-00000000-0000-0000-%04x-%x", ordinal, process())
}

// busID is made of the UUID, so that processes that agree on one agree on the
// other: its last 16 bits are the domain, the ordinal's low byte is the bus.
func busID(uuid string) string {
	return fmt.Sprintf("%s:%s:00.0", uuid[36:40], uuid[25:27])
}
