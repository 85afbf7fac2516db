package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// gRPC's status codes, as far as the gateway speaks them.
const (
	grpcCancelled         = 1
	grpcInvalidArgument   = 3
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcUnimplemented     = 12
	grpcInternal          = 13
	grpcUnavailable       = 14
	grpcUnauthenticated   = 16
)

// isGRPC says whether r is a gRPC call (gRPC over HTTP/2, "Requests").
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 || r.Method != http.MethodPost {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcCode is the gRPC status of a refusal.
func (r refusal) grpcCode() int {
	switch r.Status {
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden:
		return grpcPermissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusMisdirectedRequest:
		return grpcUnimplemented
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return grpcResourceExhausted
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		if r.Code == string(authz.CodeRouteBusy) {
			return grpcResourceExhausted
		}
		return grpcUnavailable
	}
	return grpcInvalidArgument
}

// writeGRPC answers a gRPC caller: a trailers-only answer.
func (r refusal) writeGRPC(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/grpc")
	setGRPCStatus(h, "", r.grpcCode(), r.Title, r.Code, r.DecisionID, r.Retryable)
	if r.close {
		h.Set("Connection", "close") // HTTP/2 has no such header: the server says GOAWAY
	}
	w.WriteHeader(http.StatusOK)
}

// setGRPCStatus writes a status and its details (google.rpc.ErrorInfo of the
// domain "sluice") under prefix, which is http.TrailerPrefix for trailers.
func setGRPCStatus(h http.Header, prefix string, code int, message, reason, decisionID string, retryable bool) {
	h[prefix+"Grpc-Status"] = []string{strconv.Itoa(code)}
	h[prefix+"Grpc-Message"] = []string{url.PathEscape(message)}
	if details := grpcDetails(code, message, reason, decisionID, retryable); details != "" {
		h[prefix+"Grpc-Status-Details-Bin"] = []string{details}
	}
}

func grpcDetails(code int, message, reason, decisionID string, retryable bool) string {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "sluice"}
	if decisionID != "" {
		info.Metadata = map[string]string{"decision_id": decisionID}
	}
	details := []protoadapt.MessageV2{info}
	if retryable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: retryAfter()}})
	}
	s := &status.Status{Code: int32(code), Message: message}
	for _, d := range details {
		packed, err := anypb.New(d)
		if err != nil {
			return ""
		}
		s.Details = append(s.Details, packed)
	}
	text, err := proto.Marshal(s)
	if err != nil {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(text)
}

// endGRPC ends a call that the register told to end, in its trailers.
func endGRPC(h http.Header, e *channel.Ending) {
	code, message, retryable := grpcUnavailable, "The channel was closed.", true
	if e.Decision != nil {
		o := authz.Code(e.Code).Outward()
		code, message, retryable = o.GRPC, o.Message, o.Retryable
	}
	switch e.Why {
	case channel.Operator:
		code, retryable = grpcPermissionDenied, false
	case channel.TooLarge:
		code, retryable = grpcResourceExhausted, false
	}
	setGRPCStatus(h, http.TrailerPrefix, code, message, e.Code, e.DecisionID, retryable)
}

// failGRPC ends a call whose worker broke off, with the status that a client
// gives to the same break when it is connected directly.
func failGRPC(h http.Header, err error) {
	code := grpcUnavailable
	if reset, ok := errors.AsType[http2.StreamError](err); ok {
		switch reset.Code {
		case http2.ErrCodeCancel:
			code = grpcCancelled
		case http2.ErrCodeEnhanceYourCalm:
			code = grpcResourceExhausted
		case http2.ErrCodeInadequateSecurity:
			code = grpcPermissionDenied
		case http2.ErrCodeRefusedStream:
			code = grpcUnavailable
		default:
			code = grpcInternal
		}
	}
	setGRPCStatus(h, http.TrailerPrefix, code, "The sandbox worker ended the call.", "WORKER_BAD_GATEWAY", "", code == grpcUnavailable)
}

// grpcMessages follows the length-prefixed messages of one direction of a call.
// The zero value follows none.
type grpcMessages struct {
	follows bool
	head    [5]byte // a flag and the length
	have    int     // of head
	left    uint32  // of the message
	limit   int64   // of a message's bytes; 0: none
}

func (x *exchange) messages(ch *channel.Channel) grpcMessages {
	return grpcMessages{follows: x.grpc, limit: ch.Limits.MaxMessageBytes}
}

// errTooLarge marks that a message has more bytes than the channel's limit.
var errTooLarge = errors.New("a message is too large")

// pass lets p go on, unless a message that begins in it is too large: that ends
// the channel. It returns how many messages end in p.
func (m *grpcMessages) pass(ch *channel.Channel, p []byte) (ended int64, err error) {
	ended, ok := m.follow(p)
	if !ok {
		ch.End(channel.EndTooLarge)
		return 0, errTooLarge
	}
	ch.Touch()
	return ended, nil
}

func (m *grpcMessages) follow(p []byte) (ended int64, ok bool) {
	for m.follows && len(p) > 0 {
		if m.have < len(m.head) {
			n := copy(m.head[m.have:], p)
			m.have, p = m.have+n, p[n:]
			if m.have < len(m.head) {
				return ended, true
			}
			m.left = binary.BigEndian.Uint32(m.head[1:])
			if m.limit > 0 && int64(m.left) > m.limit {
				return ended, false
			}
		}
		n := min(uint64(m.left), uint64(len(p)))
		m.left, p = m.left-uint32(n), p[n:]
		if m.left == 0 {
			m.have = 0
			ended++
		}
	}
	return ended, true
}
