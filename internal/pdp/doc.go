// Package pdp is the policy decision point: Rego inside the gateway.
//
// A policy set is compiled from the shipped packages and a team's own rules
// and data, checked, and then swapped in whole behind one pointer; a bad set
// is refused and the old one stays. A question becomes one evaluation on one
// of a few persistent evaluators, behind a bounded queue: the classification
// of the lease's records first, unless the snapshot keeps one of this very
// set, then the decision. Records, principals and live documents keep their
// terms, so that a request builds little more than its own part of the input.
//
// Rego says yes or no; this package sees to it that anything else is a denial
// with its own reason: undefined, an error, a time-out, a panic, a result of
// another shape, a full queue, no policy. It neither looks facts up nor acts
// on the answer.
package pdp
