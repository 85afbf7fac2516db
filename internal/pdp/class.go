package pdp

import (
	"slices"
	"sluice/internal/authz"
	"strings"
)

// class is what one policy set can see of a request besides its principal,
// capability and channel's generation.
type class struct {
	set  *policySet
	seen string
}

// Class implements authz.Classes: two requests of one class, on the same facts,
// get the same answer at the same moment. It is false when the active set looks
// at what is each request's own, so that none is like another.
func (e *Engine) Class(r *authz.Request) (any, bool) {
	set := e.set.Load()
	if set == nil || set.needs.channel || set.needs.age {
		return nil, false
	}
	if set.needs.onlyEnvironment() {
		return class{set, r.EnvironmentID}, true
	}
	parts := make([]string, 0, 8)
	for name, value := range map[string]string{
		"environment_id": r.EnvironmentID, "method": r.Method, "path": r.Path, "host": r.Host,
		"protocol": r.Protocol, "remote_address": r.RemoteAddress, "lease_id": r.LeaseID,
	} {
		if set.needs.requestField(name) {
			parts = append(parts, name+"="+value)
		}
	}
	if set.needs.requestField("id") || set.needs.requestField("headers") {
		return nil, false
	}
	slices.Sort(parts)
	return class{set, strings.Join(parts, "\x00")}, true
}

// Lasts is part of authz.Lasting: the active set gave the answer, and its
// team's rules see of an admit only what they saw of the open.
func (e *Engine) Lasts(opened *authz.Decision) bool {
	set := e.set.Load()
	return set != nil && set.lasting && opened.Policy == set.revision && e.running()
}

// SameGates is part of authz.Lasting.
func (e *Engine) SameGates(last *authz.Decision) bool {
	set := e.set.Load()
	return set != nil && set.shipped && last.Policy == set.revision
}

// Overlooks is part of authz.Lasting.
func (e *Engine) Overlooks(last *authz.Decision) bool {
	set := e.set.Load()
	return set != nil && set.lasting && set.overlooks && last.Policy == set.revision && e.running()
}

// Inherit is part of authz.Lasting.
func (e *Engine) Inherit(from, to *authz.Snapshot) {
	if k, ok := from.Derived.Load().(*kept); ok && to.Derived.Load() == nil {
		to.Derived.Store(&kept{set: k.set, workersEnabled: k.workersEnabled, classification: k.classification})
	}
}

// running is false when the engine has ended: nothing is allowed any more.
func (e *Engine) running() bool {
	select {
	case <-e.stopped:
		return false
	default:
		return true
	}
}

var (
	_ authz.Classes = (*Engine)(nil)
	_ authz.Lasting = (*Engine)(nil)
)
