package snapshot

import (
	"encoding/json/jsontext"
	"fmt"
	"sluice/internal/authz"
	"strconv"
)

// fieldType is one row of the table of types (decision semantics, section 2).
// Absent and null are the same; check sees neither.
type fieldType struct {
	name     string
	required bool
	check    func(*node) *Fault // with Field relative to the value
}

var revisionType = fieldType{"revision", true, isRevision}

// recordTypes says, for each kind, which fields policy sees and of what type
// they are.
var recordTypes = map[authz.Kind][]fieldType{
	authz.KindLease: {
		{"id", true, isID},
		{"tenantId", true, isID},
		{"environmentId", false, isID},
		{"status", true, isFilled},
		{"leasePolicy", false, isString},
		{"provider", false, isString},
		{"providerLeaseId", false, isEmptyOrToken},
		{"expiresAt", false, isTime},
		{"configResolution", false, isString},
		{"capabilities", false, isObject},
		{"pin", false, isObject},
		{"metadata", false, isObject},
		revisionType,
	},
	authz.KindEnvironment: {
		{"id", true, isID},
		{"tenantId", true, isID},
		{"driver", false, isString},
		{"status", true, isFilled},
		revisionType,
	},
	authz.KindPlugin: {
		{"id", true, isID},
		{"tenantId", false, isID},
		{"pluginKey", false, isString},
		{"status", true, isFilled},
		{"environmentDrivers", false, areDrivers},
		revisionType,
	},
	authz.KindWorker: {
		{"id", true, isID},
		{"tenantId", false, isID},
		{"pluginId", true, isID},
		{"url", true, isFilled},
		revisionType,
	},
	authz.KindControl: {
		{"duplexEnabled", false, isAnything}, {"suspendedTenants", false, areStrings}, revisionType,
	},
}

var liveTypes = []fieldType{
	{"id", true, isID},
	{"pluginId", true, isID},
	{"status", true, isFilled},
	{"generation", true, isToken},
	{"supportedMethods", false, areStrings},
}

// checkTypes holds an object against a table.
func checkTypes(object *node, table []fieldType) *Fault {
	for _, t := range table {
		v := object.get(t.name)
		if v == nil {
			if t.required {
				return &Fault{Field: t.name, Offset: object.start, What: "is missing"}
			}
			continue
		}
		if f := t.check(v); f != nil {
			f.Field = t.name + f.Field
			return f
		}
	}
	return nil
}

func wrong(n *node, what string) *Fault { return &Fault{Offset: n.start, What: what} }

func isAnything(*node) *Fault { return nil }

func isObject(n *node) *Fault {
	if n.kind != jsontext.KindBeginObject {
		return wrong(n, "is no object")
	}
	return nil
}

func isString(n *node) *Fault {
	if n.kind != jsontext.KindString {
		return wrong(n, "is no string")
	}
	return nil
}

func isFilled(n *node) *Fault {
	if n.kind != jsontext.KindString || n.str == "" {
		return wrong(n, "is no non-empty string")
	}
	return nil
}

func isID(n *node) *Fault {
	if n.kind != jsontext.KindString || !ValidID(n.str) {
		return wrong(n, "is no id ("+idGrammar+")")
	}
	return nil
}

func isToken(n *node) *Fault {
	if n.kind != jsontext.KindString || !ValidToken(n.str) {
		return wrong(n, "is no token (1 to 512 visible ASCII characters)")
	}
	return nil
}

func isEmptyOrToken(n *node) *Fault {
	if n.kind == jsontext.KindString && n.str == "" {
		return nil
	}
	return isToken(n)
}

func isTime(n *node) *Fault {
	if n.kind != jsontext.KindString {
		return wrong(n, "is no time ("+timeGrammar+")")
	}
	if _, err := ParseTime(n.str); err != nil {
		return wrong(n, err.Error())
	}
	return nil
}

func isRevision(n *node) *Fault {
	if _, ok := revision(n); !ok {
		return wrong(n, "is no integer from 0 to 9223372036854775807, without fraction or exponent")
	}
	return nil
}

// revision reads the literal text: a float64 would round beyond 2^53.
func revision(n *node) (int64, bool) {
	if n == nil || n.kind != jsontext.KindNumber || n.str[0] == '-' {
		return 0, false
	}
	v, err := strconv.ParseInt(n.str, 10, 64)
	return v, err == nil
}

func areStrings(n *node) *Fault {
	return each(n, "is no list of strings", isString)
}

func areDrivers(n *node) *Fault {
	return each(n, "is no list of objects", func(entry *node) *Fault {
		if f := isObject(entry); f != nil {
			return f
		}
		for _, name := range []string{"driverKey", "kind"} {
			v := entry.get(name)
			if v == nil || v.kind != jsontext.KindString {
				return &Fault{Field: "." + name, Offset: entry.start, What: "is no string"}
			}
		}
		return nil
	})
}

func each(list *node, what string, check func(*node) *Fault) *Fault {
	if list.kind != jsontext.KindBeginArray {
		return wrong(list, what)
	}
	for i := range list.items {
		if f := check(&list.items[i]); f != nil {
			f.Field = fmt.Sprintf("[%d]%s", i, f.Field)
			return f
		}
	}
	return nil
}
