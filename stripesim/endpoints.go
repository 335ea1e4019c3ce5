package stripesim

import (
	"net/url"
	"slices"
)

type endpoint struct {
	row `json:"-"`

	ID            string            `json:"id"`
	Object        kind              `json:"object"`
	APIVersion    text              `json:"api_version"`
	Application   null              `json:"application"`
	Created       int64             `json:"created"`
	Description   text              `json:"description"`
	EnabledEvents []string          `json:"enabled_events"`
	Livemode      bool              `json:"livemode"`
	Metadata      map[string]string `json:"metadata"`
	ShownSecret   string            `json:"secret,omitempty"` // only in the answer to its creation
	Status        string            `json:"status"`
	URL           string            `json:"url"`
}

func (*endpoint) kind() kind   { return kindEndpoint }
func (o *endpoint) id() string { return o.ID }

var (
	endpointParams = params{
		"description": stringParam(
			5000,
		).clearable(),
		"enabled_events": enabledEventsParam, "expand": expandParam,
		"metadata": metadataParam, "url": stringParam(5000),
	}
	createEndpointParams = endpointParams.with(params{
		"api_version": oneOf(apiVersion), "connect": unsupported,
		"enabled_events": enabledEventsParam.needed(), "url": stringParam(5000).needed(),
	})
	updateEndpointParams = endpointParams.with(params{"disabled": booleanParam})
)

// endpointsMax is how many endpoints the API makes for an account in one mode.
const endpointsMax = 16

func (t *tx) createEndpoint(c *call) (any, *apiError) {
	p := &c.params
	if err := checkURL(p.str("url")); err != nil {
		return nil, err
	}
	if len(t.s.st.endpoints.order[t.account]) >= endpointsMax {
		err := invalid("", "", "You have reached the maximum of %d test webhook endpoints.", endpointsMax)
		err.executed = true // so the key keeps this answer, also when there is room again
		return nil, err
	}
	e := newEndpoint(p.str("url"))
	e.ID, e.Created = t.s.newID("we_1", 23), t.now.Unix()
	e.APIVersion, e.Description, e.EnabledEvents = p.text(
		"api_version",
	), p.text(
		"description",
	), p.strings(
		"enabled_events",
	)
	e.Metadata = mergeMetadata(e.Metadata, p)
	e.Secret = t.s.newID("whsec_", 32)
	t.create(e)
	shown := *e
	shown.ShownSecret = e.Secret
	return &shown, nil
}

func newEndpoint(target string) *endpoint {
	return &endpoint{
		Object: kindEndpoint, EnabledEvents: []string{"*"}, Metadata: map[string]string{}, Status: "enabled",
		URL: target,
	}
}

func checkURL(raw string) *apiError {
	if u, err := url.Parse(raw); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return invalid("url_invalid", "url", "Invalid URL: An explicit scheme (such as https) must be provided.")
	}
	return nil
}

func (t *tx) findEndpoint(c *call) (*endpoint, *apiError) {
	if e, ok := t.s.st.endpoints.get(t.account, c.id); ok {
		return e, nil
	}
	return nil, missing(404, "webhook endpoint", c.id, "webhook_endpoint")
}

func (t *tx) getEndpoint(c *call) (any, *apiError) {
	e, err := t.findEndpoint(c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (t *tx) listEndpoints(c *call) (any, *apiError) {
	return page(t, c, t.s.st.endpoints, t.s.st.endpoints.order[t.account], func(*endpoint) bool { return true })
}

func (t *tx) updateEndpoint(c *call) (any, *apiError) {
	e, err := t.findEndpoint(c)
	if err != nil {
		return nil, err
	}
	p := &c.params
	if p.has("url") {
		if err := checkURL(p.str("url")); err != nil {
			return nil, err
		}
	}
	e = edit(t, e)
	if p.has("url") {
		e.URL = p.str("url")
	}
	if p.has("description") {
		e.Description = p.text("description")
	}
	if p.has("enabled_events") {
		e.EnabledEvents = p.strings("enabled_events")
	}
	if p.has("disabled") {
		e.Status = "enabled"
		if p.boolean("disabled") {
			e.Status = "disabled"
		}
	}
	e.Metadata = mergeMetadata(e.Metadata, p)
	return e, nil
}

func (t *tx) deleteEndpoint(c *call) (any, *apiError) {
	e, err := t.findEndpoint(c)
	if err != nil {
		return nil, err
	}
	t.delete(e)
	return struct {
		ID      string `json:"id"`
		Object  kind   `json:"object"`
		Deleted bool   `json:"deleted"`
	}{e.ID, kindEndpoint, true}, nil
}

// wants is whether events of this type are sent to this endpoint.
func (e *endpoint) wants(name string) bool {
	return e.Status == "enabled" &&
		slices.ContainsFunc(e.EnabledEvents, func(w string) bool { return matchesType(w, name) })
}
