package proxy

import (
	"net/http"
	"slices"
	"sluice/internal/authz"

	"github.com/gorilla/mux"
)

// Route says what a path asks for. The capability is the verb that is judged;
// the HTTP method never is.
type Route struct {
	Path        string // canonical, with one {lease} unless LeaseHeader is set
	Capability  authz.Capability
	Kind        authz.ChannelKind
	Methods     []string // kinds stream and request: those taken; empty: any but CONNECT, OPTIONS and TRACE
	LeaseHeader string   // the header that names the lease, for paths that do not
	Upgrade     []string // further protocols that a duplex route takes in Upgrade
}

// lookPath is answered by the gateway itself.
const lookPath = "/v1/leases/{lease}/capabilities"

// matcher is gorilla/mux as a pure matcher: it never redirects, cleans or
// answers. Targets reach it only when they are canonical.
type matcher struct{ router *mux.Router }

type matched struct {
	*Route
	look  bool
	lease string
}

func newMatcher(routes []Route) *matcher {
	router := mux.NewRouter().SkipClean(true)
	look := Route{Path: lookPath, Kind: authz.Look, Methods: []string{http.MethodGet}}
	for _, r := range append([]Route{look}, routes...) {
		router.Path(r.Path).Name(r.Path).Handler(handlerOf{&r})
	}
	return &matcher{router}
}

// handlerOf carries a Route through mux; it is never served.
type handlerOf struct{ route *Route }

func (handlerOf) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (m *matcher) match(r *http.Request) (matched, bool) {
	var found mux.RouteMatch
	if !m.router.Match(r, &found) || found.MatchErr != nil || found.Route == nil {
		return matched{}, false
	}
	h, ok := found.Route.GetHandler().(handlerOf)
	if !ok {
		return matched{}, false
	}
	return matched{Route: h.route, look: h.route.Kind == authz.Look, lease: found.Vars["lease"]}, true
}

// takes says whether the route takes an HTTP method. What a duplex route
// takes is for the handshake to say.
func (r *Route) takes(method string) bool {
	switch {
	case method == http.MethodConnect, method == http.MethodTrace:
		return false
	case r.Kind == authz.Duplex, len(r.Methods) == 0:
		return method != http.MethodOptions
	default:
		return slices.Contains(r.Methods, method)
	}
}

func (r *Route) allow() []string {
	if r.Kind == authz.Duplex {
		return []string{http.MethodGet}
	}
	return r.Methods
}
