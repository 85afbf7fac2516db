// Package proxy is the enforcement point on the data plane: it stands between
// callers and sandbox workers and lets nothing through that was not decided.
//
// A channel opens, in this order and no other: the request's target is
// checked to be canonical, its route is matched, its method and handshake are
// checked, the caller is identified and held to its rate, the open decision
// is taken and a place reserved, the worker is dialled and its answer
// checked, the admit decision is taken, and only then does the caller see
// anything of the worker. Every refusal on the way goes through one function
// that knows statuses and words.
//
// A channel then is two pumps, one for each direction, that forward bytes as
// they are and follow frame boundaries, so that the register can end the
// channel at any moment with a proper close.
//
// The package decides nothing itself, never redirects, never repairs a
// request, and keeps no connection to a worker for a second use.
package proxy
