# METADATA
# title: The security team's own rules
# description: |
#   Rules of this package, in any file of the team's own directory or bundle,
#   can deny what the gates would let through and nothing else:
#
#   `deny contains reason if {...}` with a reason of 1 to 128 bytes, and
#   `limits`, an object that lowers idle_timeout_ms, max_lifetime_ms or
#   max_message_bytes of the channels that are let through.
# scope: package
# schemas:
#   - input: schema.input
package sluice.custom

import rego.v2

# METADATA
# title: Nothing is denied here
# description: |
#   There is no version 0 of the input, so this rule never holds. It is here so
#   that the compiler refuses a `deny` that is written as anything but a set of
#   reasons.
deny contains "UNKNOWN_INPUT_VERSION" if input.version == 0

# METADATA
# title: Nothing is lowered here
# description: The same for `limits`, and what is not one value.
limits := {} if input.version == 0
