// Package decisionlog writes one record for every open, for every recheck
// that changed the answer, and for every channel's end, in the format of
// OPA's decision logs, so that what reads those reads these.
//
// Recording never waits: a record goes into a bounded queue, and what does
// not fit is dropped and counted. A record is put together and written by
// Run, off the request's path.
//
// A record never holds a credential, a frame, a command line or a query
// string. The package decides nothing and masks nothing: masking is OPA's,
// where its own decision_logs are configured.
package decisionlog
