// Package worker is the link to the sandbox workers: what a worker is able to
// do now, and the only way to connect to one.
//
// A worker serves its live document at one path. Links holds, for each worker
// in use, either one stream on which the worker repeats the document (link:
// watch) or asks again for every request (link: probe); auto takes the stream
// where the worker offers it, static takes the operator's word, none asks
// nobody. A link exists only once somebody asked: a worker whose lease fails
// an earlier gate is never contacted. The document is live while the stream
// is up and the worker keeps talking; when the stream ends, nothing opens any
// more, and the open channels keep the last document for a short grace in
// which the worker must come back.
//
// Every connection goes through one Dialer, the data plane's too. It checks
// the final address, after resolution, against what the operator allows and
// against the gateway's own listeners and its store; it follows no redirect
// and knows no proxy. So a record cannot point the gateway at something that
// is not a worker.
//
// The package does not judge documents: whether the worker is the right one
// and able to do what is asked is the policy's to say.
package worker
