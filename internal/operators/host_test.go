package operators

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// What a scrape, a probe, a forwarded port or a proxy that was named sends as Host
// is taken; what a web page could be called is not.
func TestTheHostIsNoOtherSites(t *testing.T) {
	own := must.Get(os.Hostname())(t)
	h := checkHost([]string{"GPU.example.org", ".proxy.example.net"}, http.NotFoundHandler())
	for host, taken := range map[string]bool{
		"127.0.0.1:9464": true, "10.1.2.3:9464": true, "10.1.2.3": true, "[::1]:9464": true, "[fd00::7]": true, "[fe80::1%25eth0]:80": true, "": true,
		"localhost:8080": true, "LOCALHOST": true, "localhost.": true, "app.localhost": true, "service:8080": true, own: true,
		"demo.gpu.svc:80": true, "demo.gpu.svc.cluster.local": true, "gpu.example.org:9464": true, "gpu.Example.org": true, "a.b.proxy.example.net": true,
		"evil.com": false, "evil.com:9464": false, "evil.com.": false, "127.0.0.1.evil.com": false, "127.0.0.1@evil.com": false, "localhost.evil.com": false,
		"svc.evil.com": false, "cluster.local.evil.com": false, "x.gpu.example.org": false, "proxy.example.net": false, "evilproxy.example.net": false, "1.2.3": false,
	} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if (w.Code == http.StatusNotFound) != taken {
			t.Errorf("%q: %d %s", host, w.Code, w.Body)
		}
	}
	req := httptest.NewRequest(http.MethodGet, "http://evil.com/", nil)
	w := httptest.NewRecorder()
	checkHost([]string{"*"}, http.NotFoundHandler()).ServeHTTP(w, req)
	if w.Code != http.StatusNotFound {
		t.Errorf("* takes every name, and not: %d", w.Code)
	}
}
