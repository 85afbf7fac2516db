// Package snapshot holds the facts: what the record store says of a lease.
//
// Records are JSON text in a store, files or Redis. They are decoded strictly
// (Decode): whatever is not exactly a record of its kind is malformed, and a
// malformed record denies; nothing is repaired, and no last good version
// stands in for it. A Cache joins the records that a lease's ids lead to into
// one authz.Snapshot, keeps it in memory, and hands the same value out until
// something that it rests on has changed.
//
// A store pushes what may have changed and confirms, again and again, that
// nothing else has (Feed). The age of a snapshot is the time since it was
// last confirmed, by the monotonic clock; beyond the limit it is stale. A
// confirmed snapshot costs no store call. Revisions never go back: what a run
// has seen at one revision it never again accepts at a lower one.
//
// The package decides nothing, knows no policy, and never reads a worker's
// live document from anywhere; it only decodes one (DecodeLive).
package snapshot
