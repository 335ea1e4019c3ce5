package postgres

// Nullable is s as a column takes it in which an absent text is NULL: nil if s is empty.
func Nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Deref is the inverse of Nullable: "" for NULL.
func Deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
