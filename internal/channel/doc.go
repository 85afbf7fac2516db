// Package channel is the register of open channels: it gives out places under
// the limits, judges every channel again when something that it rests on
// moves, and ends exactly those that lost their right.
//
// A data plane reserves a channel with an allowing decision, binds it to what
// must be cut, and asks Commit before the caller sees anything. From the
// reservation on, the register knows the channel: a change that comes while
// the worker is still answering already finds it.
//
// The life of a channel:
//
//	opening ──Commit──▶ open ──End──▶ ending ──Done──▶ (gone)
//	   └──────────────End─────────────▲
//
// The register does not know sockets, frames or HTTP; it tells a channel's
// owner to stop, and measures how long that took.
package channel
