package proxy

import (
	"net/http"
	"testing"
)

func TestNothingIsReadBehindARequestThatIsNotWellFormed(t *testing.T) {
	g := startGateway(t, "127.0.0.1:1")
	for name, head := range map[string]string{
		"an id that is none":             "POST /v1/leases/-x/execute HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"an environment that is no id":   "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nSluice-Environment-Id: .\r\n\r\n",
		"an upgrade where none is":       "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n",
		"an upgrade that is not taken":   "GET /v1/leases/lease-1/duplex HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
		"a path that is not canonical":   "POST /v1//leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"a head that is not well-formed": "POST /v1/leases/lease-1/execute HTTP/1.1\r\nHost: gateway\r\nA : b\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, br := dialRaw(t, g.address, head+"GET /second HTTP/1.1\r\nHost: gateway\r\n\r\n")
			answer, err := http.ReadResponse(br, nil)
			if err != nil || answer.StatusCode != http.StatusBadRequest || !answer.Close {
				t.Fatalf("answered %+v, %v", answer, err)
			}
			_, _ = br.Discard(int(answer.ContentLength))
			if second, err := http.ReadResponse(br, nil); err == nil {
				t.Errorf("the second request was answered %d", second.StatusCode)
			}
		})
	}
}
