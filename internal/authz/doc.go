// Package authz is the vocabulary of Sluice and the one path by which every
// decision is reached and recorded.
//
// A front door (the proxy, and later Envoy's check) fills in a Request and
// calls Authorizer.Authorize. The authorizer looks up the Snapshot of the
// lease, asks the Policy, asks the worker only when the worker is all that is
// missing, holds the answer against the Floor, and hands the Decision to the
// Recorder before anyone acts on it.
//
// Three properties hold by construction: the zero Decision denies; no error
// allows; nothing is decided without being recorded. The package knows
// neither Rego nor Redis nor HTTP handlers, and imports nothing of ours.
package authz
