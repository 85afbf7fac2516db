package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// exchange is one request on its way through the gateway.
type exchange struct {
	proxy    *Proxy
	settings *settings
	w        http.ResponseWriter
	r        *http.Request
	started  time.Time

	route     matched
	connect   string // the protocol of an extended CONNECT
	lease     string
	handshake handshake
	grpc      bool   // the caller is to be answered as gRPC has it
	trusted   bool   // the peer is a trusted proxy
	peer      string // its address
	client    string // the peer's or, when that is a trusted proxy, the caller's behind it
	request   *authz.Request
}

// span starts the span of the open and puts it into the request's context.
func (x *exchange) span() trace.Span {
	ctx := x.proxy.propagator.Extract(x.r.Context(), propagation.HeaderCarrier(x.r.Header))
	ctx, span := x.proxy.tracer.Start(ctx, "open", trace.WithSpanKind(trace.SpanKindServer))
	x.r = x.r.WithContext(ctx)
	return span
}

// traceContext is what the worker is told of the trace: the gateway's span or,
// where that is not recorded, the caller's own context as it came, if it did.
func (x *exchange) traceContext() propagation.MapCarrier {
	ctx, carrier := x.r.Context(), propagation.MapCarrier{}
	if !trace.SpanFromContext(ctx).IsRecording() {
		came := x.proxy.propagator.Extract(context.Background(), propagation.HeaderCarrier(x.r.Header))
		if trace.SpanContextFromContext(came).IsValid() {
			ctx = came
		}
	}
	x.proxy.propagator.Inject(ctx, carrier)
	return carrier
}

func (x *exchange) refuse(refused refusal) {
	switch {
	case x.r.ProtoMajor == 1:
		refused.close = refused.close || x.r.Close || x.handshake.Kind != notUpgrade || len(x.r.Header["Upgrade"]) > 0 || x.r.ContentLength != 0
		if x.r.ContentLength != 0 {
			// net/http would wait without end for a body that nobody reads.
			_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(unreadBodyTime))
		}
	default: // one stream's fault is not the connection's; a drain is
		refused.close = refused.Code == shuttingDown().Code
	}
	if x.grpc {
		refused.writeGRPC(x.w)
		return
	}
	refused.write(x.w)
}

// unreadBodyTime is how long the caller of a refused request may go on sending
// its body.
const unreadBodyTime = time.Second

// checkUpgrade holds the request against what the route takes.
func (x *exchange) checkUpgrade() *refusal {
	h, err := handshakeOf(x.r)
	switch x.connect {
	case "":
	case "websocket":
		h, err = connectHandshake(x.r)
	default:
		err = badHandshake("this resource takes no extended CONNECT but that of a WebSocket")
	}
	if err != nil {
		return wireRefusal(err)
	}
	x.handshake = h
	if x.route.Kind != authz.Duplex {
		if h.Kind != notUpgrade {
			refused := badRequest("this resource takes no upgrade")
			return &refused
		}
		return nil
	}
	if x.grpc {
		return nil
	}
	if h.Kind == notUpgrade {
		refused := upgradeRequired(http.StatusUpgradeRequired, "")
		if x.r.ProtoMajor > 1 { // HTTP/2 has no Upgrade to require
			refused = badRequest("this resource takes an extended CONNECT of a WebSocket, or a gRPC call")
		}
		return &refused
	}
	if h.Kind == otherUpgrade && !containsFold(x.route.Upgrade, h.Token) {
		refused := badRequest("this resource takes no upgrade to that protocol")
		return &refused
	}
	return x.checkOrigin()
}

// checkOrigin refuses a browser that a foreign page drives: a WebSocket is
// not held back by the same-origin policy, so a page anywhere could open one
// with the user's credentials. No Origin is a program.
func (x *exchange) checkOrigin() *refusal {
	origins := x.r.Header["Origin"]
	if len(origins) == 0 || len(origins) == 1 && slices.Contains(x.settings.AllowedOrigins, origins[0]) {
		return nil
	}
	refused := originRefused()
	return &refused
}

// identify finds out who calls and fills in the question; then it holds the
// caller to its rate.
func (x *exchange) identify() *refusal {
	_, span := x.proxy.tracer.Start(x.r.Context(), "identify")
	defer span.End()
	principal, err := x.proxy.identifier.Identify(x.r)
	if err != nil {
		refused := badRequest(err.Error())
		return &refused
	}
	environment, refused := x.environment()
	if refused != nil {
		return refused
	}
	if err := x.readPeer(); err != nil {
		return wireRefusal(err)
	}
	x.request = &authz.Request{
		ID: authz.NewID(), Phase: authz.Open, Kind: x.route.Kind,
		LeaseID: x.lease, Capability: x.route.Capability, EnvironmentID: environment, Principal: principal,
		Method: x.r.Method, Path: x.r.URL.Path, Host: x.r.Host, Protocol: x.protocol(),
		Headers: x.proxy.identifier.Scrub(x.r.Header), RemoteAddress: x.client,
	}
	dropSpoofed(x.request.Headers, x.trusted)
	if !x.settings.rates.allow(x.callerKey()) {
		refused := denied(x.proxy.authorizer.Refuse(x.request, authz.Busy(authz.ReasonCallerRate)))
		return &refused
	}
	return nil
}

func (x *exchange) environment() (string, *refusal) {
	values := x.r.Header["Sluice-Environment-Id"]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !authz.ValidID(values[0]) {
		refused := badRequest("Sluice-Environment-Id must be one well-formed id")
		return "", &refused
	}
	return values[0], nil
}

func (x *exchange) protocol() string {
	switch {
	case x.grpc:
		return "grpc"
	case x.handshake.Kind == websocketUpgrade:
		return "websocket"
	case x.handshake.Kind == otherUpgrade:
		return x.handshake.Token
	}
	return x.r.Proto
}

// look answers a caller who asks before it opens.
func (x *exchange) look() {
	granted, d := x.proxy.authorizer.Look(x.r.Context(), x.request)
	if !d.Allow {
		x.refuse(denied(d))
		return
	}
	body, err := json.Marshal(struct {
		LeaseID      string                    `json:"leaseId"`
		Capabilities map[authz.Capability]bool `json:"capabilities"`
		Revision     int64                     `json:"revision"`
	}{x.lease, granted, d.View.Snapshot.Lease.Revision})
	if err != nil {
		panic(err) // strings, booleans and an integer
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Cache-Control", "no-store")
	_, _ = x.w.Write(body)
}

// open is the first story, from the decision on.
func (x *exchange) open() {
	var ch *channel.Channel
	d := x.proxy.authorizer.Authorize(x.r.Context(), x.request, func(d *authz.Decision) (reason authz.Reason) {
		ch, reason = x.proxy.register.Reserve(x.request, d)
		return reason
	})
	defer x.closeLeftOver()
	if !d.Allow {
		x.refuse(denied(d))
		return
	}
	ch.Decided(d)
	opened := false
	defer func() { // also when an answer is broken off, which panics
		if !opened {
			ch.Done()
		}
	}()
	opened = x.openChannel(ch, d)
}

// openChannel reports whether the channel opened, and so is somebody else's
// to finish; what did not open was refused.
func (x *exchange) openChannel(ch *channel.Channel, d authz.Decision) bool {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	ch.Opening(cancel)

	if x.route.Kind != authz.Duplex || x.grpc {
		return x.stream(ctx, ch, d)
	}
	return x.duplex(ctx, ch, d)
}

// closeLeftOver closes a connection to the worker that a decision made and
// nobody took.
func (x *exchange) closeLeftOver() {
	if c := x.request.Conn; c != nil {
		_ = c.Close()
	}
}

// dial connects to the worker that the decision rests on.
func (x *exchange) dial(ctx context.Context, d authz.Decision) (net.Conn, error) {
	ctx, span := x.proxy.tracer.Start(ctx, "dial", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	if c := x.request.Conn; c != nil {
		x.request.Conn = nil
		if !x.grpc || speaksHTTP2(c) {
			return c, nil
		}
		_ = c.Close()
	}
	worker := d.View.Snapshot.Worker
	dial := x.proxy.dialer.DialAddress
	if x.grpc {
		dial = x.proxy.dialer.DialHTTP2
	}
	conn, err := dial(ctx, worker.URL, d.Live.Address)
	if err != nil {
		span.RecordError(err)
		x.proxy.log.Info("worker could not be reached", "worker", worker.ID, "error", err)
	}
	return conn, err
}

// admit takes the second decision, under the generation of the first, for the
// caller as it is known now.
func (x *exchange) admit(ctx context.Context, ch *channel.Channel, opened authz.Decision) authz.Decision {
	x.request.Phase, x.request.Principal = authz.Admit, ch.Admitting()
	return x.proxy.authorizer.Admit(ctx, x.request, &opened)
}

// headers are what the worker gets.
func (x *exchange) headers(d authz.Decision) (http.Header, error) {
	lease := d.View.Snapshot.Lease
	proto := "http"
	if x.r.TLS != nil {
		proto = "https"
	}
	carrier := x.traceContext()
	token, err := x.proxy.token()
	if err != nil {
		return nil, err
	}
	h, err := workerHeaders(x.r.Header, x.trusted, x.handshake, gatewayHeaders{
		LeaseID: x.lease, TenantID: lease.TenantID, EnvironmentID: lease.EnvironmentID,
		DriverKey: lease.Pin.DriverKey, ProviderLeaseID: lease.ProviderLeaseID,
		Subject: x.request.Principal.Subject, DecisionID: d.ID, WorkerGeneration: d.Live.Generation,
		RequestID: x.request.ID, Traceparent: carrier["traceparent"],
		ForwardedFor: x.peer, ForwardedHost: x.r.Host, ForwardedProto: proto,
	})
	if err == nil && token != "" {
		h["Authorization"] = []string{"Bearer " + token}
	}
	return h, err
}

// workerRefusal is the answer when the way to the worker failed.
func (x *exchange) workerRefusal(ch *channel.Channel, err error) refusal {
	if _, ok := errors.AsType[*wireError](err); ok {
		return *wireRefusal(err)
	}
	var timeout net.Error
	switch {
	case ch != nil && ch.Ending() != nil:
		return ended(ch.Ending())
	case errors.Is(err, ErrForbidden):
		return denied(x.proxy.authorizer.Refuse(x.request, authz.Deny(authz.CodeWorkerUnavailable, authz.ReasonWorkerForbidden)))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return workerTimeout()
	}
	return badGateway()
}

// checkGeneration holds a worker's answer against the process that was
// decided on.
func (x *exchange) checkGeneration(h http.Header, d authz.Decision) *refusal {
	said := h["Sluice-Worker-Generation"]
	if d.Live.Static { // nobody has asked the worker which process it is
		return nil
	}
	if len(said) == 0 || len(said) == 1 && said[0] == d.Live.Generation {
		return nil
	}
	refused := denied(x.proxy.authorizer.Refuse(x.request, authz.Deny(authz.CodeWorkerUnavailable, authz.ReasonWorkerChanged)))
	return &refused
}

// requestHead is the head that a worker gets for an upgrade.
func requestHead(method, target, host string, h http.Header) []byte {
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	return append(appendHeaders(head, h), "\r\n"...)
}

func appendHeaders(head []byte, h http.Header) []byte {
	for name, values := range h {
		for _, v := range values {
			head = fmt.Appendf(head, "%s: %s\r\n", name, v)
		}
	}
	return head
}
