package pdp_test

import (
	"fmt"
	"slices"
	"strings"
)

// mutation damages or changes a case; most only one place of it.
type mutation struct {
	name  string
	apply func(obj)
}

// group is what a random case picks from: first a group by weight, then one of
// its mutations. A field with many bad values is not picked more often than
// one with few.
type group struct {
	weight    int
	mutations []mutation
	forEach   bool // each is tried alone with each of the nine capabilities
}

// forEach marks groups that not all capabilities heed alike.
func forEach(groups ...group) []group {
	for i := range groups {
		groups[i].forEach = true
	}
	return groups
}

// put sets one field to each of the values.
func put(weight int, path string, values ...any) group {
	g := group{weight: weight}
	for _, v := range values {
		name := fmt.Sprintf("%s=%.40s", path, encodeName(v))
		g.mutations = append(g.mutations, mutation{name, func(c obj) { c.set(path, fresh(v)) }})
	}
	return g
}

func encodeName(v any) []byte {
	if v == (gone{}) {
		return []byte("absent")
	}
	return encode(v)
}

// any of these, and then the field's own.
func wild(weight int, path string, values ...any) group {
	return put(weight, path, append(slices.Clone(anything), values...)...)
}

func long(n int) string { return strings.Repeat("a", n) }

// eachCapability changes something of one capability at a time.
func eachCapability(weight int, name string, change func(c obj, capability string)) group {
	g := group{weight: weight}
	for _, capability := range capabilities {
		g.mutations = append(g.mutations, mutation{name + " " + capability, func(c obj) { change(c, capability) }})
	}
	return g
}

// own changes something of the capability that the case asks for.
func own(weight int, prefix string, values ...any) group {
	g := group{weight: weight}
	for _, v := range values {
		g.mutations = append(g.mutations, mutation{
			fmt.Sprintf("%s.*=%.40s", prefix, encodeName(v)),
			func(c obj) {
				if asked, ok := c.get("request.capability").(string); ok {
					c.set(prefix+"."+asked, fresh(v))
				}
			},
		})
	}
	return g
}

// one is a group of its own for each change.
func one(weight int, name string, change func(c obj)) group {
	return group{weight: weight, mutations: []mutation{{name, change}}}
}

// several sets fields together.
func several(weight int, name string, fields obj) group {
	return one(weight, name, func(c obj) {
		for path, v := range fields {
			c.set(path, fresh(v))
		}
	})
}

func entry(key, kind string) obj { return obj{"driverKey": key, "kind": kind} }

func bare(field string, values ...any) group {
	g := wild(1, "records.lease.pin."+field, values...)
	for i, m := range g.mutations {
		g.mutations[i] = mutation{m.name + ", bare metadata", func(c obj) {
			c.set("records.lease.metadata", obj{"sandboxProviderPlugin": true})
			m.apply(c)
		}}
	}
	return g
}

// removeMethods takes one method from the live document.
func removeMethods(weight int) group {
	g := group{weight: weight}
	for _, method := range liveMethods {
		g.mutations = append(g.mutations, mutation{fmt.Sprintf("live without %v", method), func(c obj) {
			if offered, ok := c.get("live.supportedMethods").([]any); ok {
				c.set("live.supportedMethods", slices.DeleteFunc(slices.Clone(offered), func(m any) bool { return m == method }))
			}
		}})
	}
	return g
}

// nested is n levels of something inside each other.
func nested(open, closing string, n int) raw {
	return raw(strings.Repeat(open, n) + "0" + strings.Repeat(closing, n))
}

// misspelt writes a field's name in another case: the word is then absent,
// and a lenient decoder is found out.
func misspelt(holder string) group {
	g := group{weight: 1}
	fields := []string{
		"id", "tenantId", "status", "pluginId", "driver", "driverKey", "workerId", "environmentId", "expiresAt",
		"duplexEnabled", "generation", "sandboxProviderPlugin", "capability", "leaseId", "revision",
	}
	for _, field := range fields {
		for _, other := range []string{strings.ToUpper(field[:1]) + field[1:], strings.ToLower(field)} {
			g.mutations = append(g.mutations, mutation{holder + "." + other, func(c obj) { c.rename(holder, field, other) }})
		}
	}
	return g
}

// sizes fill a record up to just the limit, and one byte beyond. They are
// large, and so they are only ever alone in a case.
func sizes() []mutation {
	var all []mutation
	for _, holder := range holders {
		for _, size := range []int{maxText, maxText + 1} {
			all = append(all, mutation{fmt.Sprintf("%s of %d bytes", holder, size), func(c obj) {
				c.set(holder+".pad", "")
				c.set(holder+".pad", long(size-len(encode(c.get(holder)))))
			}})
		}
	}
	return all
}
