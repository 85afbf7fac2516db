package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sluice/internal/authz"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// newTracing returns the tracer and what flushes it at the end. Without a
// configured endpoint nothing is sent and nothing is sampled; a request still
// has a trace context, so that a worker can be told one.
func newTracing(ctx context.Context, cfg TelemetryConfig) (trace.Tracer, func(context.Context) error, error) {
	options := []sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.NeverSample())}
	if sendsTraces(cfg) {
		exporter, err := otlptracehttp.New(ctx, exporterOptions(cfg)...)
		if err != nil {
			return nil, nil, fmt.Errorf("set up traces: %w", err)
		}
		named := resource.NewSchemaless(attribute.String("service.name", cfg.ServiceName))
		options = []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(named)}
	}
	provider := sdktrace.NewTracerProvider(options...)
	return provider.Tracer("sluice"), provider.Shutdown, nil
}

// sendsTraces says whether the configuration or the environment names a
// receiver.
func sendsTraces(cfg TelemetryConfig) bool {
	return cfg.Traces.OTLPEndpoint != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func exporterOptions(cfg TelemetryConfig) []otlptracehttp.Option {
	if cfg.Traces.OTLPEndpoint == "" {
		return nil // the exporter reads the environment itself
	}
	endpoint := cfg.Traces.OTLPEndpoint
	if u, err := url.Parse(endpoint); err == nil && strings.Trim(u.Path, "/") == "" {
		endpoint = u.JoinPath("v1/traces").String() // where a receiver listens, as with the OTEL_* variables
	}
	return []otlptracehttp.Option{otlptracehttp.WithEndpointURL(endpoint)}
}

// tracedFacts gives the look-up of a snapshot a span.
type tracedFacts struct {
	next   authz.Facts
	tracer trace.Tracer
}

func (t tracedFacts) Snapshot(ctx context.Context, leaseID string) authz.View {
	ctx, span := t.tracer.Start(ctx, "snapshot")
	defer span.End()
	view := t.next.Snapshot(ctx, leaseID)
	span.SetAttributes(attribute.Bool("sluice.fresh", view.Fresh))
	return view
}

// Class is the policy's own.
func (t tracedPolicy) Class(req *authz.Request) (any, bool) {
	classes, ok := t.Policy.(authz.Classes)
	if !ok {
		return nil, false
	}
	return classes.Class(req)
}

func (t tracedPolicy) Lasts(opened *authz.Decision) bool {
	lasting, ok := t.Policy.(authz.Lasting)
	return ok && lasting.Lasts(opened)
}

func (t tracedPolicy) SameGates(last *authz.Decision) bool {
	lasting, ok := t.Policy.(authz.Lasting)
	return ok && lasting.SameGates(last)
}

func (t tracedPolicy) Overlooks(last *authz.Decision) bool {
	lasting, ok := t.Policy.(authz.Lasting)
	return ok && lasting.Overlooks(last)
}

func (t tracedPolicy) Inherit(from, to *authz.Snapshot) {
	if lasting, ok := t.Policy.(authz.Lasting); ok {
		lasting.Inherit(from, to)
	}
}

// A policy offers the same with traces as without.
var (
	_ authz.Classes = tracedPolicy{}
	_ authz.Lasting = tracedPolicy{}
)

// tracedPolicy gives an evaluation a span.
type tracedPolicy struct {
	authz.Policy
	tracer trace.Tracer
}

func (t tracedPolicy) Decide(ctx context.Context, q *authz.Question) authz.Decision {
	ctx, span := t.tracer.Start(ctx, "decide")
	defer span.End()
	d := t.Policy.Decide(ctx, q)
	span.SetAttributes(attribute.Bool("sluice.allow", d.Allow), attribute.String("sluice.code", string(d.Code)))
	return d
}
