// Package sample is a small but real sandbox worker: the example of how a
// worker implements its side of the link, the worker of `gateway demo`, and
// the one that the end-to-end tests look at from behind.
//
// A Worker is an http.Handler. It serves its live document at /v1/worker,
// once as JSON or, to a gateway that asks for it, as a stream that repeats
// the document whenever it changes. Beside it are the five things that the
// gateway's default routes lead to: two WebSockets that echo (duplex, runner),
// execute, output and the two directions of sync. It refuses a request that
// was meant for another generation of it. A Server puts a Worker on a socket
// and counts who connects.
//
// What a production worker has and this one has not: sandboxes, a check of
// the gateway's token, limits for each lease. Faults can be switched on, to
// see what a gateway makes of a worker that misbehaves.
package sample
