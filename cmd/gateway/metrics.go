package main

import (
	"context"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"sluice/internal/channel"
	"sluice/internal/worker"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// metrics are the gateway's OpenTelemetry instruments, shown in Prometheus
// form. Every label is from a closed set: never a lease, tenant, subject, path
// or channel.
type metrics struct {
	registry *prometheus.Registry
	meter    metric.Meter

	decisions        metric.Int64Counter
	decisionDuration metric.Float64Histogram
	openDuration     metric.Float64Histogram
	channelEnds      metric.Int64Counter
	revocationDelay  metric.Float64Histogram
	policyReloads    metric.Int64Counter

	mu   sync.Mutex
	sets map[decisionLabels]metric.MeasurementOption
}

// decisionLabels are the labels of sluice_decisions_total.
type decisionLabels struct {
	allow  bool
	code   authz.Code
	reason authz.Reason
	phase  authz.Phase
	kind   authz.ChannelKind
}

// maxLabelSets bounds the label sets, should a replaced policy make up
// reasons; what is beyond is counted under the reason OTHER.
const maxLabelSets = 1024

// newMetrics makes the instruments and registers Go's and the process's own.
func newMetrics() (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo(),
	)
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	m := &metrics{
		registry: registry,
		meter:    sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)).Meter("sluice"),
		sets:     map[decisionLabels]metric.MeasurementOption{},
	}
	if err := m.instruments(); err != nil {
		return nil, err
	}
	m.beginAtZero()
	return m, nil
}

// Buckets in seconds: an evaluation takes tens of microseconds, an open
// milliseconds, and a revocation must stay inside its bound.
var durationBuckets = metric.WithExplicitBucketBoundaries(
	.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
)

func (m *metrics) instruments() error {
	b := instrumentBuilder{meter: m.meter}
	m.decisions = b.counter("sluice_decisions", "Decisions reached.")
	m.decisionDuration = b.duration("sluice_decision_duration", "Time that the policy took, without waiting.")
	m.openDuration = b.duration("sluice_open_duration", "Time from a request read to its first byte forwarded.")
	m.channelEnds = b.counter("sluice_channel_ends", "Channels that ended.")
	m.revocationDelay = b.duration("sluice_revocation_delay", "Time from a change noticed to the last byte forwarded.")
	m.policyReloads = b.counter("sluice_policy_reloads", "Policy sets loaded or refused.")
	return b.err
}

// beginAtZero shows the counters whose labels are known before anything is
// counted: an alert on their increase must not miss the first.
func (m *metrics) beginAtZero() {
	ctx := context.Background()
	for _, kind := range []authz.ChannelKind{authz.Duplex, authz.Stream} {
		for _, why := range channel.Whys {
			m.channelEnds.Add(ctx, 0, endLabels(kind, why))
		}
	}
	for _, result := range []string{"loaded", "refused"} {
		m.policyReloads.Add(ctx, 0, metric.WithAttributes(attribute.String("result", result)))
	}
}

func endLabels(kind authz.ChannelKind, why channel.Why) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("kind", string(kind)), attribute.String("why", string(why)))
}

// instrumentBuilder keeps the first error, so that the list above reads as a
// list.
type instrumentBuilder struct {
	meter metric.Meter
	err   error
}

func (b *instrumentBuilder) keep(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("set up metrics: %w", err)
	}
}

func (b *instrumentBuilder) counter(name, about string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithDescription(about))
	b.keep(err)
	return c
}

func (b *instrumentBuilder) duration(name, about string) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithDescription(about), metric.WithUnit("s"), durationBuckets)
	b.keep(err)
	return h
}

// gauge shows what value returns when metrics are read.
func (m *metrics) gauge(name, about string, value func() float64, labels ...attribute.KeyValue) error {
	_, err := m.meter.Float64ObservableGauge(name, metric.WithDescription(about),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(value(), metric.WithAttributes(labels...))
			return nil
		}))
	return err
}

// counterOf shows what value returns as a counter.
func (m *metrics) counterOf(name, about string, value func() int64) error {
	_, err := m.meter.Int64ObservableCounter(name, metric.WithDescription(about),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(value())
			return nil
		}))
	return err
}

// RecordDecision implements authz.Recorder.
func (m *metrics) RecordDecision(req *authz.Request, d *authz.Decision) {
	ctx := context.Background()
	m.decisions.Add(ctx, 1, m.labels(decisionLabels{d.Allow, d.Code, d.Reason, req.Phase, req.Kind}))
	if d.Evaluated > 0 {
		m.decisionDuration.Record(ctx, d.Evaluated.Seconds(), phaseLabels[req.Phase])
	}
}

var phaseLabels = map[authz.Phase]metric.MeasurementOption{
	authz.Open:    phaseLabel(authz.Open),
	authz.Admit:   phaseLabel(authz.Admit),
	authz.Recheck: phaseLabel(authz.Recheck),
}

func phaseLabel(p authz.Phase) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("phase", string(p))))
}

// labels returns the label set of l, made once.
func (m *metrics) labels(l decisionLabels) metric.MeasurementOption {
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.sets[l]; ok {
		return set
	}
	if len(m.sets) >= maxLabelSets {
		l.reason = "OTHER"
	}
	result := "deny"
	if l.allow {
		result = "allow"
	}
	set := metric.WithAttributeSet(attribute.NewSet(
		attribute.String("result", result), attribute.String("code", string(l.code)), attribute.String("reason", string(l.reason)),
		attribute.String("phase", string(l.phase)), attribute.String("kind", string(l.kind)),
	))
	m.sets[l] = set
	return set
}

// Opened notes how long an open took.
func (m *metrics) Opened(took time.Duration) {
	m.openDuration.Record(context.Background(), took.Seconds())
}

// channelsOpen shows the channels that a register counts by kind.
func (m *metrics) channelsOpen(count func() map[authz.ChannelKind]int) error {
	_, err := m.meter.Int64ObservableGauge("sluice_channels_open", metric.WithDescription("Channels that are open or opening."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			counts := count()
			for _, kind := range []authz.ChannelKind{authz.Duplex, authz.Stream} {
				o.Observe(int64(counts[kind]), kindLabel(kind))
			}
			return nil
		}))
	return err
}

// channelBytes shows the bytes that were forwarded so far.
func (m *metrics) channelBytes(forwarded func() (toWorker, toCaller int64)) error {
	_, err := m.meter.Int64ObservableCounter("sluice_channel_bytes", metric.WithDescription("Bytes forwarded."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			toWorker, toCaller := forwarded()
			o.Observe(toWorker, metric.WithAttributes(attribute.String("direction", "to_worker")))
			o.Observe(toCaller, metric.WithAttributes(attribute.String("direction", "to_caller")))
			return nil
		}))
	return err
}

func (m *metrics) workerLinks(count func() map[worker.State]int) error {
	_, err := m.meter.Int64ObservableGauge("sluice_worker_links", metric.WithDescription("Links to workers."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for state, n := range count() {
				o.Observe(int64(n), metric.WithAttributes(attribute.String("state", string(state))))
			}
			return nil
		}))
	return err
}

// RecordEnd implements channel.Recorder.
func (m *metrics) RecordEnd(s *channel.Summary) {
	if !s.OfChannel() {
		return
	}
	m.channelEnds.Add(context.Background(), 1, endLabels(s.Request.Kind, s.Ending.Why))
}

// RecordRevocation implements channel.Recorder.
func (m *metrics) RecordRevocation(delay time.Duration) {
	m.revocationDelay.Record(context.Background(), delay.Seconds())
}

func kindLabel(k authz.ChannelKind) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("kind", string(k)))
}

// recorders is every place that decisions and endings are recorded in.
type recorders []recorder

type recorder interface {
	authz.Recorder
	channel.Recorder
}

func (rs recorders) RecordDecision(req *authz.Request, d *authz.Decision) {
	for _, r := range rs {
		r.RecordDecision(req, d)
	}
}

func (rs recorders) RecordEnd(s *channel.Summary) {
	for _, r := range rs {
		r.RecordEnd(s)
	}
}

func (rs recorders) RecordRevocation(d time.Duration) {
	for _, r := range rs {
		r.RecordRevocation(d)
	}
}

// policyReloaded counts a policy set that was loaded, or refused.
func (m *metrics) policyReloaded(err error) {
	result := "loaded"
	if err != nil {
		result = "refused"
	}
	m.policyReloads.Add(context.Background(), 1, metric.WithAttributes(attribute.String("result", result)))
}

// showMetrics shows what the parts themselves count.
func (g *gateway) showMetrics(context.Context) error {
	m := g.metrics
	build := buildVersion()
	return errors.Join(
		m.channelsOpen(g.register.Counts),
		m.channelBytes(g.register.Forwarded),
		m.workerLinks(g.links.States),
		m.gauge("sluice_store_up", "Whether the store tells of changes now.", func() float64 { return truth(g.facts.Stats().Up) }),
		m.gauge("sluice_snapshot_age_seconds", "Time since the store was last confirmed.", func() float64 { return g.facts.Stats().Age.Seconds() }),
		m.gauge("sluice_revision_marks_kept", "Whether revision marks outlive a restart.", func() float64 { return truth(g.marksKept()) }),
		m.counterOf("sluice_store_resyncs", "Times that everything in use was confirmed again.", func() int64 { return int64(g.facts.Stats().Resyncs) }),
		m.counterOf("sluice_decision_log_dropped", "Decision log records that were dropped.", g.decisions.Dropped),
		m.gauge("sluice_build_info", "What this binary is.", func() float64 { return 1 },
			attribute.String("version", build.Version), attribute.String("opa", build.OPA), attribute.String("go", build.Go)),
		m.policyRevision(g.policy.Revision),
	)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// policyRevision shows the revision of the active policy set as a label.
func (m *metrics) policyRevision(revision func() string) error {
	_, err := m.meter.Int64ObservableGauge("sluice_policy_revision_info", metric.WithDescription("The active policy set."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, metric.WithAttributes(attribute.String("revision", revision())))
			return nil
		}))
	return err
}
