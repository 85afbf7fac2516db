package snapshot

// Servers are those of the store behind the layer, where it has any.
func (s *Verifier) Servers() []ServerStatus {
	if several, ok := s.next.(interface{ Servers() []ServerStatus }); ok {
		return several.Servers()
	}
	return nil
}
