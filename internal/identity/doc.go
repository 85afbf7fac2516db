// Package identity says who calls: from the credentials of a request to a
// principal.
//
// Identifier finds the credential on a request (an Authorization header, or a
// WebSocket subprotocol for browsers) and refuses a request that carries more
// than one, since two readers could then take it for two callers. Each Bearer
// it was made with is asked whom the token stands for; Tokens is the one that
// reads the file of API tokens, of which it holds nothing but their SHA-256.
// Further kinds of bearer tokens are further Bearers.
//
// A credential stands for the same *authz.Principal for as long as its entry
// does not change, so that what the policy derives from a principal is derived
// once; Current tells what has become of it since.
//
// The package does not judge expiry (that is the policy's gate 2), knows
// nothing of leases, and logs no credential.
package identity
