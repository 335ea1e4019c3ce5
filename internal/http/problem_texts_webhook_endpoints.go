package http

// webhookEndpointTexts are the texts of the problems of webhookEndpointsPart.
var webhookEndpointTexts = map[string]problemText{
	codeTooManyEndpoints: {
		What: "A tenant may have 10 webhook endpoints, disabled ones among them, and this one has as many. None was made.",
		Retry: "Not with this key: it returns this response every time. Endpoints cannot be deleted; enable one that is " +
			"disabled, or let one of them receive more types of events.",
	},
}
