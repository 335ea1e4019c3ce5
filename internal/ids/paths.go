package ids

// Paths are where the API shows its objects, by the kind of their ids. Each part of
// the service names its own, and the program puts them together.
type Paths map[string]string

// Href is the path of the object with an id; empty if the API does not show it.
func (p Paths) Href(id string) string {
	kind := Kind(id)
	if path, ok := p[kind]; ok && Is(kind, id) {
		return path + id
	}
	return ""
}
