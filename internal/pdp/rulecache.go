package pdp

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	smallFrame = 32 // values of a frame that are kept in place
	smallRef   = 6  // terms of a reference that is kept in place
)

// ruleCache holds what rules evaluated to within one evaluation. OPA's own
// builds a tree anew each time; here a frame keeps its first values in place,
// compared one by one, and only the rest in OPA's. One evaluator reuses one
// cache: reset it between evaluations.
type ruleCache struct {
	frames []*ruleFrame
	depth  int // frames in use
}

type ruleFrame struct {
	small [smallFrame]ruleValue
	n     int
	rest  topdown.VirtualCache // nil until it is needed
}

type ruleValue struct {
	ref  [smallRef]*ast.Term
	n    int
	term *ast.Term // nil: undefined
}

// reset forgets everything but what is kept, at most smallFrame values.
func (c *ruleCache) reset(kept []ruleValue) {
	for c.depth > 0 {
		c.Pop()
	}
	c.Push()
	f := c.frames[0]
	f.n = copy(f.small[:], kept)
}

// keep returns known, which reset was given, and the values of the given rules that
// were evaluated since.
func (c *ruleCache) keep(known []ruleValue, rules []ast.Ref) []ruleValue {
	kept := known[:len(known):len(known)]
	f := c.frames[0]
	for i := len(known); i < f.n; i++ {
		if v := &f.small[i]; slices.ContainsFunc(rules, v.is) && isSmall(v.term) {
			kept = append(kept, *v)
		}
	}
	return kept
}

// isSmall reports whether a value may be kept with every snapshot: a scalar, or a
// few of them.
func isSmall(term *ast.Term) bool {
	const most, longest = 32, 256
	if term == nil {
		return true // undefined
	}
	terms, small := 0, true
	ast.WalkTerms(term, func(t *ast.Term) bool {
		terms++
		text, _ := t.Value.(ast.String)
		small = small && terms <= most && len(text) <= longest
		return !small
	})
	return small
}

// Push is part of topdown.VirtualCache.
func (c *ruleCache) Push() {
	if c.depth == len(c.frames) {
		c.frames = append(c.frames, new(ruleFrame))
	}
	c.depth++
}

// Pop is part of topdown.VirtualCache.
func (c *ruleCache) Pop() {
	c.depth--
	f := c.frames[c.depth]
	clear(f.small[:f.n]) // keeps no input alive
	f.n, f.rest = 0, nil
}

// Get is part of topdown.VirtualCache.
func (c *ruleCache) Get(ref ast.Ref) (*ast.Term, bool) {
	f := c.frames[c.depth-1]
	for i := range f.small[:f.n] {
		if v := &f.small[i]; v.is(ref) {
			return v.term, v.term == nil
		}
	}
	if f.rest != nil {
		return f.rest.Get(ref)
	}
	return nil, false
}

// Put is part of topdown.VirtualCache. The reference is copied: OPA reuses it.
func (c *ruleCache) Put(ref ast.Ref, term *ast.Term) {
	f := c.frames[c.depth-1]
	for i := range f.small[:f.n] {
		if v := &f.small[i]; v.is(ref) {
			v.term = term
			return
		}
	}
	if f.n == smallFrame || len(ref) > smallRef {
		if f.rest == nil {
			f.rest = topdown.NewVirtualCache()
		}
		f.rest.Put(ref, term)
		return
	}
	v := &f.small[f.n]
	v.n, v.term = len(ref), term
	copy(v.ref[:], ref)
	f.n++
}

// Keys is part of topdown.VirtualCache; only debuggers ask.
func (*ruleCache) Keys() []ast.Ref { return nil }

func (v *ruleValue) is(ref ast.Ref) bool {
	if v.n != len(ref) {
		return false
	}
	for i := len(ref) - 1; i >= 0; i-- { // the last term differs most often
		if v.ref[i] != ref[i] && !v.ref[i].Equal(ref[i]) {
			return false
		}
	}
	return true
}
