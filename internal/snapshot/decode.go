package snapshot

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"sluice/internal/authz"
	"strings"
	"time"
)

// Kinds lists the kinds of records.
func Kinds() []authz.Kind {
	return []authz.Kind{authz.KindLease, authz.KindEnvironment, authz.KindPlugin, authz.KindWorker, authz.KindControl}
}

// Decode reads one record, which stands under kind and id ("" for control),
// exactly: what is no record of that kind in every detail is an error, a
// *Fault with its place. The record's JSON holds the fields of the table of
// types, and those of extraFields ("lease.region") that are of this kind;
// other fields are dropped, metadata is kept whole. Numbers keep their
// literal text.
func Decode(kind authz.Kind, id string, raw []byte, extraFields []string) (*authz.Record, error) {
	r, _, err := decode(kind, id, raw, extraFields)
	return r, err
}

// decode is Decode, with the digest of the whole value.
func decode(kind authz.Kind, id string, raw []byte, extraFields []string) (*authz.Record, digest, error) {
	table := recordTypes[kind]
	if table == nil {
		return nil, digest{}, fmt.Errorf("no kind of record is called %q", kind)
	}
	object, fault := parseObject(raw, table)
	if fault == nil && kind != authz.KindControl && object.text("id") != id {
		fault = &Fault{Field: "id", Offset: object.get("id").start, What: fmt.Sprintf("is not the key's, %q", id)}
	}
	if fault != nil {
		return nil, digest{}, fault.place(raw)
	}
	r := &authz.Record{Kind: kind, ID: id}
	r.Revision, _ = revision(object.get("revision"))
	r.JSON = visible(object, raw, table, extraFields, kind)
	fill(r, object)
	return r, digestOf(object), nil
}

// DecodeLive reads a worker's live document by the same rules, without
// revision and key.
func DecodeLive(raw []byte) (*authz.Live, error) {
	object, fault := parseObject(raw, liveTypes)
	if fault != nil {
		return nil, fault.place(raw)
	}
	live := &authz.Live{
		ID:         object.text("id"),
		PluginID:   object.text("pluginId"),
		Status:     object.text("status"),
		Generation: object.text("generation"),
	}
	if methods := object.get("supportedMethods"); methods != nil {
		for _, m := range methods.items {
			live.SupportedMethods = append(live.SupportedMethods, m.str)
		}
	}
	return live, nil
}

func parseObject(raw []byte, table []fieldType) (*node, *Fault) {
	object, fault := parse(raw)
	if fault != nil {
		return nil, fault
	}
	if object.kind != jsontext.KindBeginObject {
		return nil, wrong(object, "is no JSON object")
	}
	return object, checkTypes(object, table)
}

// visible is the compact object of the fields that policy sees, in the
// record's own order.
func visible(object *node, raw []byte, table []fieldType, extraFields []string, kind authz.Kind) []byte {
	out := make([]byte, 0, object.end-object.start)
	out = append(out, '{')
	for _, m := range object.members {
		inTable := slices.ContainsFunc(table, func(t fieldType) bool { return t.name == m.name })
		if !inTable && !slices.Contains(extraFields, string(kind)+"."+m.name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, m.name)
		out = append(out, ':')
		out = compact(out, &m.value, raw)
	}
	return append(out, '}')
}

// compact appends a value without its white space; strings and numbers keep
// their literal text.
func compact(out []byte, n *node, raw []byte) []byte {
	if n.kind != jsontext.KindBeginObject && n.kind != jsontext.KindBeginArray {
		return append(out, raw[n.start:n.end]...)
	}
	inString := false
	for i := n.start; i < n.end; i++ {
		c := raw[i]
		switch {
		case inString && c == '\\':
			out = append(out, c)
			i++
			c = raw[i]
		case c == '"':
			inString = !inString
		case !inString && strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		}
		out = append(out, c)
	}
	return out
}

// fill sets the fields that the gateway itself acts on.
func fill(r *authz.Record, object *node) {
	r.TenantID = object.text("tenantId")
	switch r.Kind {
	case authz.KindLease:
		r.EnvironmentID = object.text("environmentId")
		r.Status = object.text("status")
		r.ProviderLeaseID = object.text("providerLeaseId")
		r.ExpiresAt = expiry(object)
		if pin := object.get("pin"); pin != nil {
			r.Pin = authz.Pin{
				Driver:    pin.text("driver"),
				PluginID:  pin.text("pluginId"),
				DriverKey: pin.text("driverKey"),
				WorkerID:  pin.text("workerId"),
			}
		}
	case authz.KindEnvironment, authz.KindPlugin:
		r.Status = object.text("status")
	case authz.KindWorker:
		r.PluginID, r.URL = object.text("pluginId"), object.text("url")
	case authz.KindControl:
		r.TenantID = "" // not a field of this kind
		if v := object.get("duplexEnabled"); v != nil {
			r.DuplexEnabled = v.kind == jsontext.KindTrue
		}
		if v := object.get("suspendedTenants"); v != nil {
			for i := range v.items {
				r.SuspendedTenants = append(r.SuspendedTenants, v.items[i].str)
			}
		}
	}
}

func expiry(lease *node) *time.Time {
	s := lease.get("expiresAt")
	if s == nil {
		return nil
	}
	t, err := ParseTime(s.str)
	if err != nil {
		t = time.Time{} // checked before; if it ever were not, the lease is long expired
	}
	return &t
}
