package keyhistory

import "regexp"

// places are what an error says of where something runs: an IP address, or a host with its port or that was looked up.
var places = regexp.MustCompile(`\[[0-9a-fA-F:.%]+\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\b[\w.-]+:\d{2,5}\b|` +
	`(lookup )\S+|\b(host|user|database)=[^\s\x60]+`)

// WithoutPlaces is an error as a tenant may see it: where the service, its database and its broker run is not the tenant's
// business.
func WithoutPlaces(text *string) *string {
	if text == nil {
		return nil
	}
	shown := places.ReplaceAllString(*text, "${4}…")
	return &shown
}
