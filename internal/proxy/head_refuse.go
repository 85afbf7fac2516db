package proxy

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// refusalField is the header by which a stand-in is recognised. No real head
// can bring it, and no caller can know the secret that its value begins with.
const refusalField = "sluice-head-refused"

var (
	refusalKey    = http.CanonicalHeaderKey(refusalField)
	refusalSecret = rand.Text()
)

// standIn is the request that net/http reads in the place of a bad head. It
// announces a body that the handler will not read and that is too long to be
// skipped: net/http then closes in the order that lets the answer arrive
// (FIN first, and the rest half a second later), even though the caller's
// bytes are left unread.
func standIn(fault *wireError) []byte {
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: refused.invalid\r\n%s: %s %d %s\r\nContent-Length: %d\r\n\r\n",
		refusalKey, refusalSecret, fault.Status, fault.Detail, 1<<30)
}

// refusalOf returns what a guarded connection refused in the place of r: the
// status and the words for the caller, and ok; not ok when r is a request. A
// handler calls it before it looks at anything else of r (its host, its
// target and its headers mean nothing then), answers, does not read the body,
// and logs no headers.
func refusalOf(r *http.Request) (status int, detail string, ok bool) {
	values := r.Header[refusalKey]
	if len(values) != 1 {
		return 0, "", false
	}
	secret, rest, _ := strings.Cut(values[0], " ")
	if subtle.ConstantTimeCompare([]byte(secret), []byte(refusalSecret)) != 1 {
		return 0, "", false
	}
	code, detail, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	return status, detail, err == nil
}
