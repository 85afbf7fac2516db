package proxy

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxCloseReason is how much of a reason fits into a close frame, in bytes.
const maxCloseReason = 123

// closeFrame returns a whole close frame, for the caller when masked is
// false, for the worker when it is true (RFC 6455 section 5.1: a client's
// frames are masked). A reason that is too long is cut between characters.
func closeFrame(code int, reason string, masked bool) ([]byte, error) {
	if code < 1000 || code > 4999 {
		return nil, fmt.Errorf("building a close frame: %d is no close code", code)
	}
	reason = cutReason(reason)
	frame := make([]byte, 0, 8+len(reason))
	frame = append(frame, 0x80|opClose, byte(2+len(reason)))
	if !masked {
		return append(binary.BigEndian.AppendUint16(frame, uint16(code)), reason...), nil
	}
	var key [4]byte
	_, _ = rand.Read(key[:]) // never fails
	frame[1] |= 0x80
	frame = append(frame, key[:]...)
	frame = append(binary.BigEndian.AppendUint16(frame, uint16(code)), reason...)
	for i := range frame[6:] {
		frame[6+i] ^= key[i%4]
	}
	return frame, nil
}

func cutReason(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	if len(reason) <= maxCloseReason {
		return reason
	}
	cut := maxCloseReason
	for cut > 0 && !utf8.RuneStart(reason[cut]) {
		cut--
	}
	return reason[:cut]
}
