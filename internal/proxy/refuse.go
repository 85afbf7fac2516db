package proxy

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strconv"
)

// refusal is everything a refused caller is told. It never holds a reason.
type refusal struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Detail     string `json:"detail,omitempty"` // of the caller's own request only
	DecisionID string `json:"decision_id,omitempty"`
	Retryable  bool   `json:"retryable"`

	allow []string // 405: the methods that are taken
	close bool     // the connection is not used again
}

// The refusals that are no decision.
//
// Behind a request that is not well-formed nothing is read: what sent it and
// the gateway may not agree on where the next one begins.
func badRequest(detail string) refusal {
	r := plain(400, "BAD_REQUEST", "The request is not well-formed.", detail)
	r.close = true
	return r
}
func notFound() refusal { return plain(404, "NOT_FOUND", "There is no such resource.", "") }
func misdirected() refusal {
	return plain(421, "MISDIRECTED_REQUEST", "This gateway does not serve that host.", "")
}

func originRefused() refusal {
	return plain(403, "ORIGIN_NOT_ALLOWED", "The origin is not allowed.", "")
}

func badGateway() refusal {
	return plain(502, "WORKER_BAD_GATEWAY", "The sandbox worker gave no valid answer.", "")
}

func workerTimeout() refusal {
	return plain(504, "WORKER_TIMEOUT", "The sandbox worker did not answer in time.", "")
}

func shuttingDown() refusal {
	return plain(503, "SHUTTING_DOWN", "The gateway is shutting down.", "")
}

func methodNotAllowed(allow []string) refusal {
	r := plain(405, "METHOD_NOT_ALLOWED", "The method is not allowed here.", "")
	r.allow = allow
	return r
}

func upgradeRequired(status int, detail string) refusal {
	return plain(status, "UPGRADE_REQUIRED", "This resource takes a WebSocket handshake.", detail)
}

// malformed is the refusal of a request head, with the status that its fault
// calls for.
func malformed(status int, detail string) refusal {
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		return plain(status, "HEADERS_TOO_LARGE", "The request head is too large.", detail)
	case http.StatusRequestURITooLong:
		return plain(status, "URI_TOO_LONG", "The request target is too long.", detail)
	case http.StatusHTTPVersionNotSupported:
		return plain(status, "VERSION_NOT_SUPPORTED", "The HTTP version is not supported.", detail)
	case http.StatusNotImplemented:
		return plain(status, "NOT_IMPLEMENTED", "The transfer coding is not supported.", detail)
	case http.StatusMethodNotAllowed:
		return methodNotAllowed(nil)
	case http.StatusUpgradeRequired:
		return upgradeRequired(status, detail)
	case http.StatusRequestEntityTooLarge:
		return plain(status, "CONTENT_TOO_LARGE", "The request is too large.", detail)
	}
	r := badRequest(detail)
	r.Status = status
	return r
}

func plain(status int, code, title, detail string) refusal {
	return refusal{
		Type: "urn:sluice:error:" + code, Title: title, Status: status, Code: code, Detail: detail,
		Retryable: status == 502 || status == 503 || status == 504,
	}
}

// denied is the refusal by a decision.
func denied(d authz.Decision) refusal {
	o := d.Code.Outward()
	r := refusal{Status: d.Status, Code: string(d.Code), Title: d.Message, DecisionID: d.ID, Retryable: d.Retryable}
	if d.Allow || r.Status < 400 || r.Title == "" || r.Code == "" { // no denial's words: refuse all the same
		r.Code, r.Title = string(authz.CodeUnavailable), authz.CodeUnavailable.Outward().Message
		r.Status, r.Retryable = o.Status, o.Retryable
	}
	r.Type = "urn:sluice:error:" + r.Code
	return r
}

// ended is the refusal of a channel that was told to end before it opened.
func ended(e *channel.Ending) refusal {
	switch {
	case e == nil:
		return denied(authz.Decision{})
	case e.Decision != nil:
		return denied(*e.Decision)
	case e.Why == channel.Drain:
		return shuttingDown()
	case e.Why == channel.TooLarge:
		return plain(http.StatusRequestEntityTooLarge, e.Code, "A message is too large.", "")
	case e.Why == channel.Operator:
		return plain(http.StatusForbidden, e.Code, "The channel was closed.", "")
	}
	o := authz.CodeUnavailable.Outward()
	return refusal{
		Type: "urn:sluice:error:" + string(authz.CodeUnavailable), Title: o.Message, Status: o.Status,
		Code: string(authz.CodeUnavailable), DecisionID: e.DecisionID, Retryable: o.Retryable,
	}
}

// retryAfter is when a refused caller may return, in seconds: spread, so that
// those who are refused together do not return together.
func retryAfter() int64 { return 1 + rand.Int64N(3) }

// write is the one place where a refusal becomes an answer.
func (r refusal) write(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if r.Retryable {
		h.Set("Retry-After", strconv.FormatInt(retryAfter(), 10))
	}
	if r.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if r.Status == http.StatusUpgradeRequired {
		h.Set("Upgrade", "websocket")
		h.Set("Sec-WebSocket-Version", "13")
	}
	switch { // net/http looks at the first value only
	case r.close && r.Status == http.StatusUpgradeRequired:
		h["Connection"] = []string{"close", "Upgrade"}
	case r.close:
		h.Set("Connection", "close")
	case r.Status == http.StatusUpgradeRequired:
		h.Set("Connection", "Upgrade")
	}
	for _, m := range r.allow {
		h.Add("Allow", m)
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, ints and bools
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}
