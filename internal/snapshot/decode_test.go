package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"sluice/internal/authz"
	"strings"
	"testing"
)

const (
	goodLease = `{"id":"lease-1","tenantId":"acme","environmentId":"env-1","status":"active",` +
		`"providerLeaseId":"sbx-9","expiresAt":"2026-10-10T13:00:00Z","capabilities":{"duplexCommandStream":true},` +
		`"pin":{"driver":"sandbox","pluginId":"plg-a","driverKey":"daytona","workerId":"wrk-a"},` +
		`"metadata":{"driver":"sandbox","n":9007199254740993},"revision":3}`
	goodEnvironment = `{"id":"env-1","tenantId":"acme","driver":"sandbox","status":"active","revision":1}`
	goodPlugin      = `{"id":"plg-a","pluginKey":"acme.daytona","status":"ready","revision":5,` +
		`"environmentDrivers":[{"driverKey":"daytona","kind":"sandbox_provider"}]}`
	goodWorker  = `{"id":"wrk-a","pluginId":"plg-a","url":"http://127.0.0.1:9000","revision":2}`
	goodControl = `{"duplexEnabled":true,"suspendedTenants":[],"revision":1}`
)

func TestDecodeReadsEveryKind(t *testing.T) {
	for _, c := range []struct {
		kind    authz.Kind
		id, raw string
	}{
		{authz.KindLease, "lease-1", goodLease},
		{authz.KindEnvironment, "env-1", goodEnvironment},
		{authz.KindPlugin, "plg-a", goodPlugin},
		{authz.KindWorker, "wrk-a", goodWorker},
		{authz.KindControl, "", goodControl},
	} {
		r, err := Decode(c.kind, c.id, []byte(c.raw), nil)
		if err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		if r.Kind != c.kind || r.ID != c.id || r.Revision == 0 {
			t.Errorf("%s: got %+v", c.kind, r)
		}
		if string(r.JSON) != c.raw {
			t.Errorf("%s: JSON\n got %s\nwant %s", c.kind, r.JSON, c.raw)
		}
	}
}

func TestDecodeFillsTheFieldsOfALease(t *testing.T) {
	r, err := Decode(authz.KindLease, "lease-1", []byte(goodLease), nil)
	if err != nil {
		t.Fatal(err)
	}
	pin := authz.Pin{Driver: "sandbox", PluginID: "plg-a", DriverKey: "daytona", WorkerID: "wrk-a"}
	if r.TenantID != "acme" || r.EnvironmentID != "env-1" || r.Status != "active" || r.ProviderLeaseID != "sbx-9" || r.Pin != pin {
		t.Errorf("got %+v", r)
	}
	if got := r.ExpiresAt.Format("2006-01-02T15:04:05Z"); got != "2026-10-10T13:00:00Z" {
		t.Errorf("expires at %s", got)
	}
}

func TestAPinMemberThatIsNoStringIsLeftToTheGates(t *testing.T) {
	raw := `{"id":"l","tenantId":"a","status":"active","revision":1,"pin":{"driver":7,"pluginId":["x"],"workerId":null}}`
	r, err := Decode(authz.KindLease, "l", []byte(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Pin != (authz.Pin{}) || !bytes.Contains(r.JSON, []byte(`"pin":{"driver":7,"pluginId":["x"],"workerId":null}`)) {
		t.Errorf("got %+v %s", r.Pin, r.JSON)
	}
}

func TestDecodeDropsWhatIsNotInTheTableButForExtraFields(t *testing.T) {
	raw := "{ \"region\" : [ 1 , \" a\\\" b \" ],\n \"\\u0069d\":\"l\", \"tenantId\":\"a\", \"secret\":{\"x\":1}, \"status\":\"active\", " +
		"\"metadata\":{ \"any\" : {\"k\":1.50} }, \"revision\":1}"
	want := `{"region":[1," a\" b "],"id":"l","tenantId":"a","status":"active","metadata":{"any":{"k":1.50}},"revision":1}`
	r, err := Decode(authz.KindLease, "l", []byte(raw), []string{"lease.region", "plugin.secret"})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.JSON) != want {
		t.Errorf("\n got %s\nwant %s", r.JSON, want)
	}
}

// lease returns a minimal lease with more members; deep nests n levels more.
func lease(more string) string {
	return `{"id":"l","tenantId":"a","status":"active","revision":1` + more + `}`
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestDecodeAcceptsTheEdges(t *testing.T) {
	for name, raw := range map[string]string{
		"white space around":        " \r\n\t" + lease("") + "\n ",
		"null is absent":            lease(`,"environmentId":null,"expiresAt":null,"pin":null,"metadata":null`),
		"names that differ in case": lease(`,"ID":"x","Status":7`),
		"escaped surrogate pair":    lease(`,"metadata":{"x":"\ud83d\ude00"}`),
		"escaped nul":               lease(`,"metadata":{"x":"\u0000"}`),
		"depth 32":                  lease(`,"metadata":{"x":` + deep(30) + `}`),
		"largest revision":          `{"id":"l","tenantId":"a","status":"active","revision":9223372036854775807}`,
		"revision 0":                `{"id":"l","tenantId":"a","status":"active","revision":0}`,
		"empty provider lease":      lease(`,"providerLeaseId":""`),
		"strings that are empty":    lease(`,"leasePolicy":"","provider":"","configResolution":""`),
		"a number of any size":      lease(`,"metadata":{"x":1e999999999999}`),
		"exactly the size limit":    lease(`,"x":"` + strings.Repeat("a", MaxText-len(lease(`,"x":""`))) + `"`),
		"id of 128":                 strings.Replace(lease(""), `"a"`, `"`+strings.Repeat("a", 128)+`"`, 1),
	} {
		if _, err := Decode(authz.KindLease, "l", []byte(raw), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, raw := range map[string]string{
		"empty":                        "",
		"white space":                  " \n",
		"null":                         "null",
		"a list":                       "[]",
		"a string":                     `"x"`,
		"half a record":                lease("")[:30],
		"a second value":               lease("") + lease(""),
		"trailing text":                lease("") + " xx",
		"a comma at the end":           lease(`,`),
		"a comment":                    lease("") + "// c",
		"a byte order mark":            "\ufeff" + lease(""),
		"single quotes":                strings.ReplaceAll(lease(""), `"`, `'`),
		"NaN":                          lease(`,"metadata":{"x":NaN}`),
		"a leading zero":               lease(`,"metadata":{"x":01}`),
		"duplicate name":               lease(`,"status":"revoked"`),
		"duplicate after unescaping":   lease(`,"\u0073tatus":"revoked"`),
		"duplicate in a dropped field": lease(`,"x":{"a":1,"a":1}`),
		"duplicate deep down":          lease(`,"metadata":{"x":[{"a":1,"\u0061":2}]}`),
		"invalid UTF-8":                lease(",\"metadata\":{\"x\":\"\xff\"}"),
		"overlong UTF-8":               lease(",\"metadata\":{\"x\":\"\xc0\x80\"}"),
		"an encoded surrogate":         lease(",\"metadata\":{\"x\":\"\xed\xa0\x80\"}"),
		"a lone high surrogate":        lease(`,"metadata":{"x":"\ud800"}`),
		"a lone low surrogate":         lease(`,"metadata":{"x":"\udc00x"}`),
		"a lone surrogate in a name":   lease(`,"metadata":{"\ud800":1}`),
		"a raw control character":      lease(",\"metadata\":{\"x\":\"a\nb\"}"),
		"depth 33":                     lease(`,"metadata":{"x":` + deep(31) + `}`),
		"depth 33 in a dropped field":  lease(`,"x":` + deep(32)),
		"depth of many":                lease(`,"x":` + deep(100000)),
		"larger than the limit":        lease(`,"x":"` + strings.Repeat("a", MaxText) + `"`),
		"white space beyond the limit": lease("") + strings.Repeat(" ", MaxText),
		"another id":                   strings.Replace(lease(""), `"l"`, `"l2"`, 1),
		"an id in other case":          strings.Replace(lease(""), `"l"`, `"L"`, 1),
		"no id":                        `{"tenantId":"a","status":"active","revision":1}`,
		"id null":                      `{"id":null,"tenantId":"a","status":"active","revision":1}`,
		"id a number":                  `{"id":1,"tenantId":"a","status":"active","revision":1}`,
		"no tenant":                    `{"id":"l","status":"active","revision":1}`,
		"tenant with space":            `{"id":"l","tenantId":"a b","status":"active","revision":1}`,
		"tenant empty":                 `{"id":"l","tenantId":"","status":"active","revision":1}`,
		"tenant of 129":                `{"id":"l","tenantId":"` + strings.Repeat("a", 129) + `","status":"active","revision":1}`,
		"status empty":                 `{"id":"l","tenantId":"a","status":"","revision":1}`,
		"status missing":               `{"id":"l","tenantId":"a","revision":1}`,
		"status a boolean":             `{"id":"l","tenantId":"a","status":true,"revision":1}`,
		"no revision":                  `{"id":"l","tenantId":"a","status":"active"}`,
		"revision null":                `{"id":"l","tenantId":"a","status":"active","revision":null}`,
		"revision a string":            `{"id":"l","tenantId":"a","status":"active","revision":"1"}`,
		"revision with a fraction":     `{"id":"l","tenantId":"a","status":"active","revision":1.0}`,
		"revision with an exponent":    `{"id":"l","tenantId":"a","status":"active","revision":1e0}`,
		"revision negative":            `{"id":"l","tenantId":"a","status":"active","revision":-1}`,
		"revision minus zero":          `{"id":"l","tenantId":"a","status":"active","revision":-0}`,
		"revision 2^63":                `{"id":"l","tenantId":"a","status":"active","revision":9223372036854775808}`,
		"revision 2^64+1":              `{"id":"l","tenantId":"a","status":"active","revision":18446744073709551617}`,
		"environment no id":            lease(`,"environmentId":"../x"`),
		"environment empty":            lease(`,"environmentId":""`),
		"lease policy a number":        lease(`,"leasePolicy":1`),
		"provider a list":              lease(`,"provider":[]`),
		"configResolution a boolean":   lease(`,"configResolution":true`),
		"providerLeaseId with a space": lease(`,"providerLeaseId":"a b"`),
		"providerLeaseId too long":     lease(`,"providerLeaseId":"` + strings.Repeat("a", 513) + `"`),
		"providerLeaseId not ASCII":    lease(`,"providerLeaseId":"ä"`),
		"providerLeaseId a number":     lease(`,"providerLeaseId":4`),
		"expiry no zone":               lease(`,"expiresAt":"2026-10-10T13:00:00"`),
		"expiry a number":              lease(`,"expiresAt":1760101200`),
		"expiry empty":                 lease(`,"expiresAt":""`),
		"capabilities a list":          lease(`,"capabilities":[]`),
		"metadata a string":            lease(`,"metadata":"{}"`),
		"pin a boolean":                lease(`,"pin":false`),
	} {
		r, err := Decode(authz.KindLease, "l", []byte(raw), nil)
		var fault *Fault
		if r != nil || !errors.As(err, &fault) {
			t.Errorf("%s: got %v, %v", name, r, err)
			continue
		}
		if fault.Line < 1 || fault.Column < 1 || fault.What == "" || fault.Offset > len(raw) {
			t.Errorf("%s: no place in %+v", name, fault)
		}
	}
}

// What is made to take much room takes no more than any text of its length.
func TestDecodeTakesBoundedRoom(t *testing.T) {
	fill := func(piece string) string {
		return lease(`,"x":[` + strings.Repeat(piece+",", (MaxText-len(lease(`,"x":[1]`)))/(len(piece)+1)) + "1]")
	}
	var names strings.Builder
	for i := 0; names.Len() < MaxText-200; i++ {
		fmt.Fprintf(&names, `,"%x":0`, i)
	}
	for name, row := range map[string]struct {
		raw     string
		refused bool
		room    uint64
	}{
		"numbers":                {fill("1"), false, 128 << 20},
		"empty lists":            {fill("[]"), false, 128 << 20},
		"empty objects":          {fill("{}"), false, 128 << 20},
		"lists of lists":         {fill(deep(30)), false, 128 << 20},
		"objects of one":         {fill(`{"a":1}`), false, 128 << 20},
		"many names":             {lease(names.String()), false, 128 << 20},
		"the deepest":            {lease(`,"x":` + deep((MaxText-100)/2)), true, 1 << 20},
		"depth without an end":   {`{"x":` + strings.Repeat("[", MaxText-10), true, 1 << 20},
		"depth by objects":       {strings.Repeat(`{"x":`, MaxText/5), true, 1 << 20},
		"a long name":            {`{"` + strings.Repeat("a", MaxText-10), true, 4 << 20},
		"a long number":          {lease(`,"revision":` + strings.Repeat("9", MaxText-100)), true, 4 << 20},
		"a duplicate among many": {lease(names.String() + `,"0":0`), true, 64 << 20},
		"a large one":            {strings.Repeat(" ", 8<<20), true, 1 << 20},
		"a large one of lists":   {strings.Repeat("[", 8<<20), true, 1 << 20},
	} {
		raw := []byte(row.raw)
		var err error
		if took := room(func() { _, err = Decode(authz.KindLease, "l", raw, nil) }); took > row.room {
			t.Errorf("%s: it took %d KiB", name, took>>10)
		}
		if (err != nil) != row.refused {
			t.Errorf("%s: %v", name, err)
		}
		if took := room(func() { _, err = DecodeLive(raw) }); took > row.room || err == nil {
			t.Errorf("%s as a live document: it took %d KiB, %v", name, took>>10, err)
		}
	}
}

func TestDecodeRefusesByTheTableOfTheOtherKinds(t *testing.T) {
	for _, c := range []struct {
		kind authz.Kind
		raw  string
	}{
		{authz.KindEnvironment, `{"id":"x","tenantId":"a","status":"active","revision":1,"driver":1}`},
		{authz.KindEnvironment, `{"id":"x","status":"active","revision":1}`},
		{authz.KindPlugin, `{"id":"x","revision":1}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"tenantId":""}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"pluginKey":{}}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"environmentDrivers":{}}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"environmentDrivers":[null]}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"environmentDrivers":["d"]}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"environmentDrivers":[{"driverKey":"d"}]}`},
		{authz.KindPlugin, `{"id":"x","status":"ready","revision":1,"environmentDrivers":[{"driverKey":null,"kind":"k"}]}`},
		{authz.KindWorker, `{"id":"x","pluginId":"p","revision":1}`},
		{authz.KindWorker, `{"id":"x","pluginId":"p","url":"","revision":1}`},
		{authz.KindWorker, `{"id":"x","url":"http://w","revision":1}`},
		{authz.KindWorker, `{"id":"x","pluginId":"p p","url":"http://w","revision":1}`},
		{authz.KindControl, `{"duplexEnabled":true}`},
		{authz.KindControl, `{"suspendedTenants":"acme","revision":1}`},
		{authz.KindControl, `{"suspendedTenants":[null],"revision":1}`},
		{authz.KindControl, `{"suspendedTenants":["a",1],"revision":1}`},
		{authz.Kind("leases"), lease("")},
	} {
		id := "x"
		if c.kind == authz.KindControl {
			id = ""
		}
		if r, err := Decode(c.kind, id, []byte(c.raw), nil); r != nil || err == nil {
			t.Errorf("%s: %s was accepted", c.kind, c.raw)
		}
	}
}

func TestTheKillSwitchMayBeAnyValue(t *testing.T) {
	for _, v := range []string{`true`, `"true"`, `1`, `{}`, `null`, `[]`} {
		if _, err := Decode(authz.KindControl, "", fmt.Appendf(nil, `{"duplexEnabled":%s,"revision":1}`, v), nil); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
}

func TestAFaultHasItsPlace(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"{\n  \"id\": \"l\",\n  \"tenantId\": \"ä b\",\n \"status\":\"active\",\"revision\":1}", "line 3, column 15: tenantId: is no id"},
		{"{\"id\":\"l\",\n\"id\":\"l\"}", "line 2, column 1: id: has a duplicate name"},
		{"{\"id\":\"l\",\"tenantId\":\"a\",\"status\":\"active\",\n\"revision\":1.5}", "line 2, column 12: revision: is no integer"},
		{"{\"id\":\"l\",\"tenantId\":\"a\",\"status\":\"active\"}", "line 1, column 1: revision: is missing"},
		{"", "line 1, column 1: is empty"},
		{"{\"id\":\n", "line 2, column 1: "},
		{"{}\n{}", "line 2, column "},
	} {
		_, err := Decode(authz.KindLease, "l", []byte(c.raw), nil)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s…", c.raw, err, c.want)
		}
	}
	raw := "{\"id\":\"x\",\"status\":\"ready\",\"revision\":1,\n\"environmentDrivers\":[{\"driverKey\":\"a\",\"kind\":\"b\"},\n{\"driverKey\":\"a\"}]}"
	_, err := Decode(authz.KindPlugin, "x", []byte(raw), nil)
	if want := "line 3, column 1: environmentDrivers[1].kind: is no string"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDecodeLiveReadsADocument(t *testing.T) {
	live, err := DecodeLive([]byte(`{"id":"wrk-a","pluginId":"plg-a","status":"running","generation":"g/4","supportedMethods":["a","b"],"more":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if live.ID != "wrk-a" || live.PluginID != "plg-a" || live.Status != "running" || live.Generation != "g/4" || fmt.Sprint(live.SupportedMethods) != "[a b]" {
		t.Errorf("got %+v", live)
	}
	for _, raw := range []string{
		``, `null`, `[]`, `{}`,
		`{"id":"w w","pluginId":"p","status":"running","generation":"g"}`,
		`{"id":"w","status":"running","generation":"g"}`,
		`{"id":"w","pluginId":"p","status":"","generation":"g"}`,
		`{"id":"w","pluginId":"p","status":"running"}`,
		`{"id":"w","pluginId":"p","status":"running","generation":"a b"}`,
		`{"id":"w","pluginId":"p","status":"running","generation":4}`,
		`{"id":"w","pluginId":"p","status":"running","generation":"g","supportedMethods":"x"}`,
		`{"id":"w","pluginId":"p","status":"running","generation":"g","supportedMethods":["x",null]}`,
		`{"id":"w","pluginId":"p","status":"running","generation":"g","generation":"g"}`,
	} {
		if live, err := DecodeLive([]byte(raw)); live != nil || err == nil {
			t.Errorf("%s was accepted", raw)
		}
	}
}

func TestADigestIsOfTheValueNotOfItsSpelling(t *testing.T) {
	of := func(raw string) digest {
		n, fault := parse([]byte(raw))
		if fault != nil {
			t.Fatal(fault)
		}
		return digestOf(n)
	}
	same := [][]string{
		{`{"a":1,"b":[true,"x"]}`, "{ \"b\" : [ true , \"\\u0078\" ],\n\"a\":1 }", `{"a":1,"b":[true,"x"],"c":null}`},
		{`{"a":100}`, `{"a":1e2}`, `{"a":100.00}`, `{"a":1E+2}`, `{"a":0.001e5}`},
		{`{"a":0}`, `{"a":-0}`, `{"a":0.0e7}`},
	}
	for _, texts := range same {
		for _, text := range texts[1:] {
			if of(text) != of(texts[0]) {
				t.Errorf("%s and %s differ", text, texts[0])
			}
		}
	}
	for _, pair := range [][2]string{
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`},
		{`{"a":1}`, `{"a":"1"}`},
		{`{"a":1}`, `{"a":-1}`},
		{`{"a":10}`, `{"a":1}`},
		{`{"a":[1,2]}`, `{"a":[2,1]}`},
		{`{"a":[null]}`, `{"a":[]}`},
		{`{"a":{}}`, `{"a":[]}`},
		{`{"a":{"b":1}}`, `{"a":{},"b":1}`},
		{`{"a":true}`, `{"a":false}`},
		{`{"ab":"c"}`, `{"a":"bc"}`},
		{`{"a":{}}`, `{}`},
	} {
		if of(pair[0]) == of(pair[1]) {
			t.Errorf("%s and %s are taken for the same", pair[0], pair[1])
		}
	}
}
