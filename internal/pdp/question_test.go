package pdp

import (
	"sluice/internal/authz"
	"testing"
)

// question is the named vector as a question.
func question(t testing.TB, name string) *authz.Question {
	t.Helper()
	return benchQuestion(t, name)
}
