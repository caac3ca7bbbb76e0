package operators

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// checkHost refuses requests that name the process by what could be a name of
// another site's. A web page whose own name is made to lead to this process (DNS
// rebinding) reads its answers as its own, and all that gives it away is that
// name. No such page has an address for a name, or one without a dot, or one of a
// cluster. Also are further names; see Config.Hosts in the root package.
func checkHost(also []string, next http.Handler) http.Handler {
	own, err := os.Hostname()
	if err == nil {
		also = append(slices.Clone(also), own)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if name := hostName(req.Host); !isNoSites(name) && !slices.ContainsFunc(also, func(known string) bool { return matches(name, known) }) {
			http.Error(w, fmt.Sprintf("host %s: address the process by an IP address, as localhost or by a name without a dot; add others to Config.Hosts or FENCEPOST_HOSTS", legible.Value(req.Host)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// isNoSites reports whether a name can be no web page's.
func isNoSites(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".localhost", ".svc", ".cluster.local"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

// matches reports whether a name is the known one, or one below it if that begins
// with a dot.
func matches(name, known string) bool {
	known = strings.ToLower(known)
	return known == "*" || name == known || strings.HasPrefix(known, ".") && strings.HasSuffix(name, known)
}

// hostName is the name or address in a Host header.
func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") // without a port
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// loopbackHost reports whether a Host header names this machine to itself.
func loopbackHost(host string) bool {
	name := hostName(host)
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.Unmap().IsLoopback()
}
